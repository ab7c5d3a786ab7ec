"""Kernels for all_reduce: every rank's output is the reduction of all ranks' inputs."""
