"""Branches: what TensorRT asks of the bodies of If."""

from __future__ import annotations

from ort_core.plugin.ir import Node


def unequal_branches(node: Node) -> str | None:
    """Return why TensorRT builds no engine of an If: its branches' results must have equal ranks."""
    if node.op_type != "If":
        return None
    bodies = node.subgraphs()
    for results in zip(*(body.outputs for body in bodies), strict=False):
        ranks = {value.rank for value in results if value.rank is not None}
        if len(ranks) > 1:
            names = " and ".join(repr(value.name) for value in results)
            return f"the branches of If give {names}, of {' and '.join(map(str, sorted(ranks)))} axes"
    return None
