"""Lowering: from the nodes of a partition, at known sizes, to a program of launches and library calls."""
