"""The nouns, which import nothing of ours: a case, what an op means, data types, what a record is and its rules."""
