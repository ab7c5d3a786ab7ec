"""Kernels for send_recv; see kernels/catalogue.py."""
