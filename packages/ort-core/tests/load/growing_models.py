"""Models of any number of nodes, of the kinds that exporters write: long, wide, repeated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hostile_models import Graph
from onnx import TensorProto, helper


def _chain(*op_types: str) -> Callable[[int], Graph]:
    def build(count: int) -> Graph:
        graph = Graph()
        for i in range(count):
            op_type = op_types[i % len(op_types)]
            graph.node(op_type, f"v{i}", f"v{i + 1}", **({"perm": [1, 0]} if op_type == "Transpose" else {}))
        return between(graph, "v0", f"v{count}")

    return build


def between(graph: Graph, first: str, last: str) -> Graph:
    """Put a graph's nodes between its input and its output."""
    graph.nodes.insert(0, helper.make_node("Identity", ["x"], [first]))
    graph.node("Identity", last, "y")
    return graph


def _weights(op_type: str) -> Callable[[int], Graph]:
    def build(count: int) -> Graph:
        graph, random = Graph(shape=(1, 4, 5, 5) if op_type == "Conv" else (3, 4)), np.random.default_rng(0)
        shape = (4, 4, 1, 1) if op_type == "Conv" else (4,) if op_type == "Add" else (4, 4)
        for i in range(count // 2):
            graph.constant(f"w{i}", random.random(shape, np.float32) / 4)
            graph.node(op_type, f"v{i} w{i}", f"u{i}")
            graph.node("Tanh", f"u{i}", f"v{i + 1}")
        return between(graph, "v0", f"v{count // 2}")

    return build


def _wide(last: str) -> Callable[[int], Graph]:
    def build(count: int) -> Graph:
        graph = Graph()
        for i in range(count):
            graph.constant(f"c{i}", np.full(4, i / count, np.float32))  # or all would be one
            graph.node("Add", f"x c{i}", f"w{i}")
            graph.node("LogSoftmax" if i % 2 else "Softmax", f"w{i}", f"v{i}")
        attributes = {"axis": 0} if last == "Concat" else {}
        graph.node(last, " ".join(f"v{i}" for i in range(count)), "y", **attributes)
        return graph

    return build


def _split(count: int) -> Graph:
    graph = Graph(shape=(count, 4))
    graph.node("Split", "x", " ".join(f"s{i}" for i in range(count)), num_outputs=count)
    for i in range(count):
        graph.node("Tanh", f"s{i}", f"t{i}")
    graph.node("Concat", " ".join(f"t{i}" for i in range(count)), "y", axis=0)
    return graph


def _residual(count: int) -> Graph:
    graph = Graph()
    for i in range(count // 2):
        graph.node("Tanh", f"v{i}", f"t{i}")
        graph.node("Add", f"v{i} t{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 2}")


def _shapes(count: int) -> Graph:
    graph = Graph(shape=("a", "b", 4))
    for name, values in (("zero", 0), ("first", [0]), ("rest", [-1])):
        graph.constant(name, np.int64(values))
    for i in range(count // 7):
        graph.node("Shape", f"v{i}", f"s{i}")
        graph.node("Gather", f"s{i} zero", f"g{i}")
        graph.node("Unsqueeze", f"g{i} first", f"u{i}")
        graph.node("Concat", f"u{i} rest", f"k{i}", axis=0)
        graph.node("Reshape", f"v{i} k{i}", f"r{i}")
        graph.node("Tanh", f"r{i}", f"t{i}")
        graph.node("Reshape", f"t{i} s{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 7}")


def _growing_sizes(count: int) -> Graph:
    graph = Graph(shape=("a", 4))
    for i in range(count // 2):
        graph.node("Concat", f"v{i} x", f"c{i}", axis=0)
        graph.node("Softmax", f"c{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 2}")


def _ifs(count: int) -> Graph:
    def branch(op_type: str, source: str, result: str) -> object:
        node = helper.make_node(op_type, [source], [result])
        return helper.make_graph([node], "g", [], [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)])

    graph = Graph()
    graph.constant("zero", np.float32(0))
    graph.node("ReduceSum", "x", "s", keepdims=0)
    graph.node("Greater", "s zero", "c")
    for i in range(count // 3):
        taken, other = branch("Tanh", f"v{i}", f"a{i}"), branch("Sin", f"v{i}", f"b{i}")
        graph.node("If", "c", f"v{i + 1}", then_branch=taken, else_branch=other)
    return between(graph, "v0", f"v{count // 3}")


def _quantized(count: int) -> Graph:
    graph = Graph()
    graph.constant("scale", np.float32(0.01))
    graph.constant("zero", np.uint8(128))
    for i in range(count // 3):
        graph.node("QuantizeLinear", f"v{i} scale zero", f"q{i}")
        graph.node("DequantizeLinear", f"q{i} scale zero", f"d{i}")
        graph.node("Tanh", f"d{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 3}")


def _functions(count: int) -> Graph:
    graph = Graph()
    imports = [helper.make_opsetid("", 20)]
    nodes = [helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("Add", ["a", "t"], ["b"])]
    graph.functions.append(helper.make_function("own", "F", ["a"], ["b"], nodes, imports))
    for i in range(count // 2):
        graph.node("F", f"v{i}", f"v{i + 1}", domain="own")
    return between(graph, "v0", f"v{count // 2}")


def _by_kernels(count: int) -> Graph:
    """Nodes that run by numpy kernels between compiled ones."""
    graph = Graph(shape=(4, 4))
    for i in range(count // 3):
        graph.node("Tanh", f"v{i}", f"t{i}")
        graph.node("Det", f"t{i}", f"d{i}")
        graph.node("Add", f"d{i} x", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 3}")


GROWING: dict[str, Callable[[int], Graph]] = {
    "elementwise chain": _chain("Tanh", "Relu", "Sigmoid", "Abs"),
    "transposes": _chain("Transpose", "Sin"),
    "row chain": _chain("Softmax", "ReduceSum"),
    "identities": _chain("Identity"),
    "additions": _weights("Add"),
    "products": _weights("MatMul"),
    "convolutions": _weights("Conv"),
    "wide concatenation": _wide("Concat"),
    "wide sum": _wide("Sum"),
    "split": _split,
    "residual": _residual,
    "shapes": _shapes,
    "growing sizes": _growing_sizes,
    "ifs": _ifs,
    "quantized pairs": _quantized,
    "functions": _functions,
    "by kernels": _by_kernels,
}
