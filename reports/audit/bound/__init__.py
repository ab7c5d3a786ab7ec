"""What the parts of a set say of each other: findings where two of them can't both be true."""
