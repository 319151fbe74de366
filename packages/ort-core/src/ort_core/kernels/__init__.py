"""How one node runs: the kernel marker, the registry and the evaluator, over numpy values."""
