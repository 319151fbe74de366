"""The mechanism of change: patterns over operators, their matcher, rules, and checked patches of a graph."""
