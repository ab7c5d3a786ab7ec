"""Kernels for all_to_all; see kernels/catalogue.py."""
