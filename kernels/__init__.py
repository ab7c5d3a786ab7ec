"""What collectives mean and how kernels do them: the catalogue, its kernels in CuTe DSL, and their numerics."""
