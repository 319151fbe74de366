"""Small models whose products lie in bodies of If, Loop and Scan."""

from __future__ import annotations

import numpy as np
import onnx
from float_models import FLOAT, Builder, branches
from onnx import TensorProto, helper


def _value(name: str, shape: list, kind: int = FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _with_shapes(model: onnx.ModelProto, **shapes: tuple) -> onnx.ModelProto:
    """State the shapes of results, which onnx does not infer behind a Loop."""
    for value in model.graph.output:
        value.CopyFrom(_value(value.name, list(shapes[value.name])))
    return model


def loop():
    """Four turns of a product with a weight of the graph around and one of its own; all turns are a result, too."""
    b = Builder()
    outer = b.weight("outer", 6, 6)
    inner = Builder(seed=3)
    inner.weight("own", 6, 6)
    inner.node("Identity", ["more"], "more_still")
    first = inner.node("MatMul", ["state", outer], "first")
    inner.node("MatMul", [inner.node("Relu", [first], "positive"), "own"], "next")
    inner.node("Identity", ["next"], "kept")
    body = helper.make_graph(
        inner.nodes, "body",
        [_value("turn", [], TensorProto.INT64), _value("more", [], TensorProto.BOOL), _value("state", [3, 6])],
        [_value("more_still", [], TensorProto.BOOL), _value("next", [3, 6]), _value("kept", [3, 6])], inner.tensors,
    )  # fmt: skip
    turns = b.constant("turns", 4, np.int64)
    b.node("Loop", [turns, "", "x"], ["y", "all"], body=body)
    return _with_shapes(b.model({"x": (3, 6)}, ["y", "all"]), y=(3, 6), all=("turns", 3, 6))


def scan():
    """A recurrence over rows: the state is added to each product."""
    b = Builder()
    start = b.weight("start", 6)
    inner = Builder(seed=4)
    inner.weight("own", 6, 6)
    product = inner.node("MatMul", ["row", "own"], "product")
    inner.node("Add", [product, "state"], "next")
    inner.node("Identity", ["next"], "given")
    body = helper.make_graph(
        inner.nodes, "body", [_value("state", [6]), _value("row", [6])], [_value("next", [6]), _value("given", [6])],
        inner.tensors,
    )  # fmt: skip
    b.node("Scan", [start, "x"], ["last", "y"], body=body, num_scan_inputs=1)
    return b.model({"x": (5, 6)}, ["last", "y"])


def branch_in_a_loop():
    """An If inside a Loop: which branch runs depends on the turn."""
    b = Builder()
    outer = b.weight("outer", 6, 6)
    inner = Builder(seed=5)
    inner.node("Identity", ["more"], "more_still")
    inner.constant("one", 1, np.int64)
    inner.node("Greater", ["turn", "one"], "late")

    def branch(name: str, weight: str | None):
        own = Builder(seed=len(name))
        product = own.node("MatMul", ["state", weight or own.weight("own", 6, 6)], f"{name}_product", name=f"{name}_p")
        own.node("Relu", [product], f"{name}_y")
        return helper.make_graph(own.nodes, name, [], [_value(f"{name}_y", [3, 6])], own.tensors)

    inner.node("If", ["late"], "next", then_branch=branch("then", None), else_branch=branch("other", outer))
    body = helper.make_graph(
        inner.nodes, "body",
        [_value("turn", [], TensorProto.INT64), _value("more", [], TensorProto.BOOL), _value("state", [3, 6])],
        [_value("more_still", [], TensorProto.BOOL), _value("next", [3, 6])], inner.tensors,
    )  # fmt: skip
    b.node("Loop", [b.constant("turns", 3, np.int64), "", "x"], ["y"], body=body)
    return _with_shapes(b.model({"x": (3, 6)}, ["y"]), y=(3, 6))


def masked_loop():
    """Two turns of scores with a mask of -1e9, as an attention has them; not among those whose ranges are compared."""
    b = Builder()
    inner = Builder(seed=6)
    inner.node("Identity", ["more"], "more_still")
    scores = inner.node("MatMul", ["state", inner.weight("own", 6, 6)], "scores")
    inner.constant("mask", np.where(np.arange(6) < 4, 0, -1e9).astype(np.float32))
    inner.node("Softmax", [inner.node("Add", [scores, "mask"], "masked")], "next", axis=-1)
    body = helper.make_graph(
        inner.nodes, "body",
        [_value("turn", [], TensorProto.INT64), _value("more", [], TensorProto.BOOL), _value("state", [3, 6])],
        [_value("more_still", [], TensorProto.BOOL), _value("next", [3, 6])], inner.tensors,
    )  # fmt: skip
    b.node("Loop", [b.constant("turns", 2, np.int64), "", "x"], ["y"], body=body)
    return _with_shapes(b.model({"x": (3, 6)}, ["y"]), y=(3, 6))


BODIES = {"branches": branches, "loop": loop, "scan": scan, "branch in a loop": branch_in_a_loop}


def op_types(graph: onnx.GraphProto) -> set[str]:
    """The operators of a graph and of all bodies inside it."""
    inner = [each.g for node in graph.node for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]
    return {node.op_type for node in graph.node}.union(*(op_types(each) for each in inner))


def bodies(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """All bodies inside a graph."""
    inner = [each.g for node in graph.node for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]
    return [*inner, *(each for body in inner for each in bodies(body))]
