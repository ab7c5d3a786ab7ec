"""PTX's number types on NumPy lanes."""
