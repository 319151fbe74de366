"""Loops and scans whose rounds are native: one call from Python runs the program of the body again and again."""
