"""What records say of errors: accuracy over sizes, studies over ranks."""

LEAST_WORLD_SIZES = 3
"""Number of world sizes from which a series is a study, in a command that does not say so."""
