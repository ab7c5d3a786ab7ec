"""The matrix of kernels: what each takes, and where it is proven."""
