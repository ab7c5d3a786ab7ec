"""A case over commits and versions of libraries, in order of time: its times, where they changed, and its data."""
