"""Litmus programs on the simulated world: as PTX, by seed, and held against the judge."""
