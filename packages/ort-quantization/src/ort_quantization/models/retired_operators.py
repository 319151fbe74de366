"""Operators that ONNX once had on trial, written as those that it has: its converter does not know the former.

Before:  y = ImageScaler<scale = s, bias = [...]>(x)      y = Affine<alpha = a, beta = b>(x)
After:   y = Add(Mul(x, s), bias)                          y = Add(Mul(x, a), b)
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

_RETIRED = {"ImageScaler": ("scale", "bias"), "Affine": ("alpha", "beta")}


def replace_retired(graph: GraphProto) -> None:
    """Replace the retired operators of a graph, in place; float32 as they had it."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    taken.update(tensor.name for tensor in graph.initializer)
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type in _RETIRED and node.domain in ("", "ai.onnx"):
            nodes.extend(_parts(node, graph, taken))
        else:
            kept = NodeProto()
            kept.CopyFrom(node)
            nodes.append(kept)
    del graph.node[:]
    graph.node.extend(nodes)


def _parts(node: NodeProto, graph: GraphProto, taken: set[str]) -> list[NodeProto]:
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    factor_name, summand_name = _RETIRED[node.op_type]
    factor = np.asarray(given.get(factor_name, 1.0), np.float32)
    summand = np.asarray(given.get(summand_name, 0.0), np.float32)
    if summand.ndim:  # a number for each channel
        summand = summand.reshape(1, -1, 1, 1)
    names = []
    for part, array in (("factor", factor), ("summand", summand)):
        names.append(new_name(f"{node.output[0]}_{part}", taken))
        graph.initializer.append(numpy_helper.from_array(array, names[-1]))
    product = new_name(f"{node.output[0]}_scaled", taken)
    return [
        helper.make_node("Mul", [node.input[0], names[0]], [product], f"{node.name}_Mul" if node.name else ""),
        helper.make_node("Add", [product, names[1]], list(node.output), f"{node.name}_Add" if node.name else ""),
    ]


def new_name(wish: str, taken: set[str]) -> str:
    """Return a name that is not taken, the one wished for where it is free, and take it."""
    name, count = wish, 0
    while name in taken:
        count += 1
        name = f"{wish}_{count}"
    taken.add(name)
    return name
