"""Graphs of one node that generates text: arguments, decoders, tokens, and a comparison."""
