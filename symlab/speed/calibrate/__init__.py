"""symlab calibrate: the floors of a type of GPU, measured by small kernels, with records, and written as its file."""
