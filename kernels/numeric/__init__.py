"""What results must be: data types, number formats, roundings, exact sums, error bounds."""
