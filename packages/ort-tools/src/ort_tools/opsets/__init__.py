"""Operator sets raised and lowered: an adapter for each change of an operator of ai.onnx between opsets 7 and 28."""
