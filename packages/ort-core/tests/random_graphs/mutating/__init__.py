"""Mutants: models in which a fusion or a compound lowering fires, with one or two changes near it."""
