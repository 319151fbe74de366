"""The numpy reference kernels, one file per operator family: the oracle, and the fallback for every provider."""
