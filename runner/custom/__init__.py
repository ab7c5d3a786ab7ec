"""A kernel of the user's own that does none of the ops known here: what it is given, how it runs, how it is judged."""
