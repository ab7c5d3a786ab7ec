"""Hydra's launchers: the workers of a sweep, what they take, where they are, and how they are ended."""
