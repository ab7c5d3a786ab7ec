"""What a run took place in: host, GPUs, packages, repository, and what a command records of them."""
