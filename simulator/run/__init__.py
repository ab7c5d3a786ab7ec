"""Running kernels: decoding, lanes and groups, barriers, copies, the schedule."""
