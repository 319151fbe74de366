"""Text: tokens and counts of n-grams."""
