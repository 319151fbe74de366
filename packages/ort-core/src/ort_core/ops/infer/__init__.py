"""Inference rules, one file per operator family; ``all_rules.MODULES`` is the list."""
