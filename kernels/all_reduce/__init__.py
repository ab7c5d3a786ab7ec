"""all_reduce: every rank's output is the sum of all ranks' inputs. One file says what it means, the others how it's done."""
