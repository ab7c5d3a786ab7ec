"""Kernels for all_gather; see kernels/catalogue.py."""
