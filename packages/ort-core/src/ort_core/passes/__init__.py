"""The policy of change: which rewrites run, in which order, at which level."""
