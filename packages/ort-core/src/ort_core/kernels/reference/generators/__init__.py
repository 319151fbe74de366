"""Constants, ranges and random numbers, and Dropout."""
