"""Kernels for all_to_all_v; see kernels/catalogue.py."""
