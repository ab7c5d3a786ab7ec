"""How long a launch takes by its critical path, and what it moves: a listener of the simulator's events."""
