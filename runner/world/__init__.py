"""Worlds of ranks: threads over the simulator, processes on GPUs, ranks of an outer launcher."""
