"""The memory of a simulated world: heaps, windows, bounds, poison."""
