"""Direct calls: a run with a known signature as one call from Python into native code."""
