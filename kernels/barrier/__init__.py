"""Kernels for barrier; see kernels/catalogue.py."""
