"""all_reduce: every rank's output is the sum of all ranks' inputs. collective.py says so, the others do it."""
