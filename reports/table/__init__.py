"""Records as tables."""
