"""Kernels for reduce_scatter; see kernels/catalogue.py."""
