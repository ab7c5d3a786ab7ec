"""Reads records; knows no kernel, no GPU, no torch."""
