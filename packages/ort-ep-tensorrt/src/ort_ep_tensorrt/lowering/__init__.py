"""Lowering: a claim as TensorRT's parser takes it: its nodes, in other words where the parser knows only those."""
