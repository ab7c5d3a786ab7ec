"""Kernels for reduce; see kernels/catalogue.py."""
