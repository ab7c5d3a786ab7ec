"""Who listens to a simulated world: counters."""
