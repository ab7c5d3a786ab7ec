"""Tables of measured choices, a file for each type of GPU, and what reads them: see table.py."""
