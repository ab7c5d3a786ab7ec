"""Races: what one run of a kernel shows of accesses that nothing orders."""
