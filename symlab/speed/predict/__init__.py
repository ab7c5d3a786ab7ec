"""How long a case takes on a type of GPU, told from what the simulator sees of its kernel: the model and its score."""
