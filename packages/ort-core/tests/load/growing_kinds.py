"""More models of any number of nodes: many inputs, outputs and weights, products, bodies, and trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from growing_models import between
from hostile_models import Graph
from onnx import TensorProto, helper


def _residual_products(count: int) -> Graph:
    graph, random = Graph(), np.random.default_rng(0)
    for i in range(count // 3):
        graph.constant(f"w{i}", random.random((4, 4), np.float32) / 4)
        graph.node("MatMul", f"v{i} w{i}", f"m{i}")
        graph.node("Relu", f"m{i}", f"r{i}")
        graph.node("Add", f"v{i} r{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 3}")


def _independent(count: int) -> Graph:
    """As many outputs as chains of two nodes."""
    graph = Graph()
    for i in range(count // 2):
        graph.constant(f"c{i}", np.full(4, i / count, np.float32))
        graph.node("Mul" if i % 2 else "Add", f"x c{i}", f"t{i}")
        graph.node("Tanh", f"t{i}", "y" if i == 0 else f"y{i}")
    graph.outputs = ["y", *(f"y{i}" for i in range(1, count // 2))]
    return graph


def _numbers(count: int) -> Graph:
    """Single numbers, no two of them equal."""
    graph = Graph()
    for i in range(count // 2):
        graph.constant(f"c{i}", np.float32(1 + i / count))
        graph.node("Mul", f"v{i} c{i}", f"m{i}")
        graph.node("Softmax" if i % 2 else "Tanh", f"m{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 2}")


def _many_inputs(count: int) -> Graph:
    graph = Graph()
    graph.inputs = ["x", *(f"x{i}" for i in range(1, count))]
    for i in range(1, count):
        graph.node("Add", f"v{i} x{i}", f"v{i + 1}")
    return between(graph, "v1", f"v{count}")


def _gathers(count: int) -> Graph:
    """Looked up and cut out with constant indices, and put together."""
    graph = Graph(shape=("a", 8))
    graph.constant("order", np.int64([3, 1, 2, 0, 7, 6, 5, 4]))
    for name, values in (("starts", [1]), ("ends", [5]), ("middle", [5]), ("far", [9]), ("axes", [1])):
        graph.constant(name, np.int64(values))
    for i in range(count // 5):
        graph.node("Gather", f"v{i} order", f"g{i}", axis=1)
        graph.node("Slice", f"g{i} starts ends axes", f"a{i}")
        graph.node("Slice", f"g{i} ends far axes", f"b{i}")
        graph.node("Concat", f"a{i} b{i} last{i}", f"c{i}", axis=1)
        graph.node("Slice", f"g{i} zero{i} starts axes", f"last{i}")
        graph.nodes[-1], graph.nodes[-2] = graph.nodes[-2], graph.nodes[-1]
        graph.constant(f"zero{i}", np.int64([0]))
        graph.node("Tanh", f"c{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 5}")


def _size_arithmetic(count: int) -> Graph:
    """Sizes computed by Gather, Mul, Div, Slice and Concat, as exporters write them."""
    graph = Graph(shape=("a", "b", 4))
    for name, values in (("i0", 0), ("i1", 1), ("l0", [0]), ("l2", [2]), ("four", [4]), ("two", 2)):
        graph.constant(name, np.int64(values))
    for i in range(count // 9):
        graph.node("Shape", f"v{i}", f"s{i}")
        graph.node("Gather", f"s{i} i0", f"a{i}")
        graph.node("Gather", f"s{i} i1", f"b{i}")
        graph.node("Mul", f"a{i} b{i}", f"m{i}")
        graph.node("Unsqueeze", f"m{i} l0", f"u{i}")
        graph.node("Concat", f"u{i} four", f"k{i}", axis=0)
        graph.node("Reshape", f"v{i} k{i}", f"r{i}")
        graph.node("Softmax", f"r{i}", f"t{i}")
        graph.node("Reshape", f"t{i} s{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 9}")


def _normalizations(count: int) -> Graph:
    """Layer normalization node by node."""
    graph = Graph(shape=("a", 8))
    graph.constant("two", np.float32(2))
    graph.constant("epsilon", np.float32(1e-5))
    graph.constant("axes", np.int64([-1]))
    for i in range(count // 9):
        graph.constant(f"w{i}", np.ones(8, np.float32))
        graph.constant(f"b{i}", np.full(8, 0.5, np.float32))
        graph.node("ReduceMean", f"v{i} axes", f"m{i}")
        graph.node("Sub", f"v{i} m{i}", f"d{i}")
        graph.node("Pow", f"d{i} two", f"p{i}")
        graph.node("ReduceMean", f"p{i} axes", f"n{i}")
        graph.node("Add", f"n{i} epsilon", f"e{i}")
        graph.node("Sqrt", f"e{i}", f"q{i}")
        graph.node("Div", f"d{i} q{i}", f"z{i}")
        graph.node("Mul", f"z{i} w{i}", f"y{i}")
        graph.node("Add", f"y{i} b{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 9}")


def _quantized_convolutions(count: int) -> Graph:
    graph, random = Graph(shape=(1, 4, 5, 5)), np.random.default_rng(0)
    graph.constant("scale", np.float32(0.01))
    graph.constant("zero", np.uint8(128))
    graph.constant("signed", np.int8(0))
    for i in range(count // 5):
        graph.constant(f"w{i}", random.integers(-60, 60, (4, 4, 1, 1)).astype(np.int8))
        graph.node("QuantizeLinear", f"v{i} scale zero", f"q{i}")
        graph.node("DequantizeLinear", f"q{i} scale zero", f"d{i}")
        graph.node("DequantizeLinear", f"w{i} scale signed", f"e{i}")
        graph.node("Conv", f"d{i} e{i}", f"c{i}")
        graph.node("Relu", f"c{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 5}")


def _scales(count: int) -> Graph:
    """Quantized pairs around activations, no two scales equal."""
    graph = Graph()
    graph.constant("zero", np.uint8(128))
    for i in range(count // 3):
        graph.constant(f"s{i}", np.float32(0.01 + i / count / 100))
        graph.node("QuantizeLinear", f"v{i} s{i} zero", f"q{i}")
        graph.node("DequantizeLinear", f"q{i} s{i} zero", f"d{i}")
        graph.node("Tanh", f"d{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 3}")


def _loops(count: int) -> Graph:
    graph = Graph()
    graph.constant("times", np.int64(2))
    graph.constant("true", np.bool_(True))
    for i in range(count // 4):
        nodes = [
            helper.make_node("Tanh", [f"in{i}"], [f"t{i}"]), helper.make_node("Add", [f"t{i}", "x"], [f"out{i}"]),
            helper.make_node("Identity", [f"c{i}"], [f"k{i}"]),
        ]  # fmt: skip
        values = [("i", TensorProto.INT64, ()), ("c", TensorProto.BOOL, ()), ("in", TensorProto.FLOAT, None)]
        inputs = [helper.make_tensor_value_info(f"{n}{i}", dtype, shape) for n, dtype, shape in values]
        outputs = [
            helper.make_tensor_value_info(f"k{i}", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(f"out{i}", TensorProto.FLOAT, None),
        ]
        graph.node("Loop", f"times true v{i}", f"v{i + 1}", body=helper.make_graph(nodes, "body", inputs, outputs))
    return between(graph, "v0", f"v{count // 4}")


def _trees(count: int) -> Graph:
    """A forest of an ensemble for each tree, as converters write those of several outputs."""
    graph = Graph(shape=("a", 4))
    for i in range(count):
        leaves = [(node, target) for node in (1, 2) for target in (0, 1)]
        graph.node(
            "TreeEnsembleRegressor", "x", f"t{i}", domain="ai.onnx.ml", n_targets=2, aggregate_function="SUM",
            nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[i % 4, 0, 0],
            nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[i / count, 0.0, 0.0],
            nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], nodes_hitrates=[1.0, 1.0, 1.0],
            nodes_missing_value_tracks_true=[0, 0, 0], target_treeids=[0] * 4,
            target_nodeids=[node for node, _ in leaves], target_ids=[target for _, target in leaves],
            target_weights=[float(i % 7 + node + target) for node, target in leaves], post_transform="NONE",
        )  # fmt: skip
    graph.node("Sum", " ".join(f"t{i}" for i in range(count)), "y")
    return graph


def _refusing(count: int) -> Graph:
    """Side by side, nodes that compile and nodes of which only the lowering finds out that they do not."""
    graph = Graph(shape=(4, 4))
    graph.node("ArgMax", "x", "positions", axis=1, keepdims=0)
    for i in range(count // 4):
        graph.constant(f"c{i}", np.full(4, i / count, np.float32))
        graph.node("Add", f"x c{i}", f"t{i}")
        graph.node("ArrayFeatureExtractor", f"t{i} positions", f"a{i}", domain="ai.onnx.ml")
        graph.node("Exp", f"a{i}", f"e{i}")
        graph.node("Softmax", f"e{i}", f"v{i}")
    graph.node("Concat", " ".join(f"v{i}" for i in range(count // 4)), "y", axis=0)
    return graph


def _unknown_sizes(count: int) -> Graph:
    """Each result has sizes of its own that only a run tells."""
    graph = Graph(shape=("a", 4))
    graph.constant("four", np.float32(4))
    graph.constant("first", np.int64(0))
    graph.node("Mul", "x four", "larger")
    graph.node("Cast", "larger", "whole", to=TensorProto.INT64)
    graph.node("Gather", "whole first", "sizes", axis=0)
    for i in range(count // 2):
        graph.constant(f"c{i}", np.full(1, i / count, np.float32))
        graph.node("Expand", f"c{i} sizes", f"e{i}")
        graph.node("Tanh", f"e{i}", "y" if i == 0 else f"y{i}")
    graph.outputs = ["y", *(f"y{i}" for i in range(1, count // 2))]
    return graph


def _recurrent(count: int) -> Graph:
    """Layers of one form."""
    graph, random = Graph(shape=("a", 2, 4)), np.random.default_rng(0)
    for i in range(count // 2):
        graph.constant(f"w{i}", random.random((1, 12, 4), np.float32) / 4)
        graph.node("GRU", f"v{i} w{i} w{i}", f"h{i} l{i}", hidden_size=4)
        graph.node("Relu", f"l{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{count // 2}")


MORE: dict[str, Callable[[int], Graph]] = {
    "residual products": _residual_products,
    "independent": _independent,
    "numbers": _numbers,
    "many inputs": _many_inputs,
    "gathers": _gathers,
    "size arithmetic": _size_arithmetic,
    "normalizations": _normalizations,
    "quantized convolutions": _quantized_convolutions,
    "scales": _scales,
    "loops": _loops,
    "trees": _trees,
    "refusing": _refusing,
    "unknown sizes": _unknown_sizes,
    "recurrent": _recurrent,
}
