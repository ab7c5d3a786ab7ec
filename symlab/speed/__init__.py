"""How fast, and which shall I take? Predictions, tunings, and the floors of a type of GPU."""
