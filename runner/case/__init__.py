"""One case: memory and arguments, the per-rank programs, inputs, the reference and the check."""
