"""What one command does: its plan, the session with its world, its jobs, and what it says meanwhile."""
