"""The numpy reference kernels: the oracle, and the fallback for every provider.

There is a folder for each room of operators, and a file for each family.
"""
