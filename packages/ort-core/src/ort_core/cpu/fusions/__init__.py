"""Fusions inside the CPU provider's partitions."""
