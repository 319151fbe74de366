"""Partitions of the CPU provider: what is native, what runs by kernels, in one order."""
