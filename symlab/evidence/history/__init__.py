"""A case over commits and versions of libraries, in order of time: its times and its data."""
