"""Searching the algorithm and the tuning that are best for each size, and the tables that hold them."""
