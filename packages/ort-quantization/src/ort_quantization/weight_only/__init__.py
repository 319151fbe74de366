"""Weights in few bits by blocks: the methods, their settings, and the nodes that stand for the weights."""
