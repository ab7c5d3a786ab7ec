"""How data gets from rank to rank: a file for each way, with all kernels that take it; see kernels/catalogue.py."""
