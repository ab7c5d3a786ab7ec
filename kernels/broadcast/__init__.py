"""Kernels for broadcast; see kernels/catalogue.py."""
