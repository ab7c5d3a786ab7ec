"""What an exploration makes of a run that failed: fewer switches, and a trace that people can read."""
