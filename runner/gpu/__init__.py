"""Types of GPUs as data: what conf/gpu says of each, with the source of every value, and its measured floors."""
