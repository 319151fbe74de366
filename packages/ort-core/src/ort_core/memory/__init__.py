"""Liveness, aliases and offsets of values: pure functions over the IR and over plain intervals."""
