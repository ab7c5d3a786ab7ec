"""What device halves are written with: frame, memory, signals, arithmetic, messages."""
