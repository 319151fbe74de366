"""The numpy reference kernels, a folder for each room and a file for each family of operators: the oracle, and the fallback for every provider."""
