"""Lets a model give what values inside the bodies of If, Loop and Scan are, sample by sample.

    Before:  y = If(flag) {then: t = MatMul(x, w); y = Relu(t)} {else: y = x}
    After:   y, t_tap_0 = If(flag) {then: ...; t_tap_0 = Reshape(t, [-1])} {else: y = x; t_tap_1 = []}

Such an output is a vector: all numbers of a value, or its least and its greatest one. A branch that is not taken gives
an empty one. A Loop carries its outputs from turn to turn, each turn adding its own; a Scan stacks them, so that bodies
inside the body of a Scan, whose outputs have other lengths each turn, have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_SCAN_SINCE = 9  # before, a Scan has an axis of batches

Known = Mapping[str, ValueInfoProto]


@dataclass(frozen=True, slots=True)
class SubgraphOutput:
    """A vector that tells of a value.

    Attributes:
        tensor: the value's name.
        result: the vector's name in the graph that gives it.
        kind: its element type.
    """

    tensor: str
    result: str
    kind: int


@dataclass
class SubgraphOutputsState:
    """What is needed to write outputs into one model, and the count of those written.

    Attributes:
        is_chosen: whether the values around a node are wanted.
        extremes_only: an output is the least and the greatest number, not all of them.
        opset: of the model.
        names: the values that are wanted; all around such nodes by default.
    """

    is_chosen: Callable[[NodeProto], bool]
    extremes_only: bool
    opset: int
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    names: frozenset[str] | None = None

    def new_name(self, tensor: str) -> str:
        """Return a name that no value has."""
        return f"{tensor}_tap_{next(self.numbers)}"


def add_subgraph_outputs(graph: GraphProto, known: Known, state: SubgraphOutputsState) -> list[SubgraphOutput]:
    """Add outputs to all bodies of a graph's nodes and lead them into the graph, whose results they can become.

    Args:
        graph: changed in place.
        known: what is known of values around it.
        state: of the model.
    """
    known = {**known, **{each.name: each for each in (*graph.value_info, *graph.output, *graph.input)}}
    found: list[SubgraphOutput] = []
    for node in list(graph.node):
        if node.op_type == "If":
            found += _out_of_if(graph, node, known, state)
        elif node.op_type == "Loop":
            found += _out_of_loop(graph, node, known, state)
        elif node.op_type == "Scan" and state.opset >= _SCAN_SINCE:
            found += _out_of_scan(graph, node, known, state)
    return found


def _outputs_inside(
    body: GraphProto, known: Known, state: SubgraphOutputsState, is_nested: bool = True
) -> list[SubgraphOutput]:
    """Add outputs for a body's own values, and those that come out of its nodes' bodies."""
    inside = {**known, **{each.name: each for each in (*body.value_info, *body.output, *body.input)}}
    constant = {tensor.name for tensor in body.initializer}
    chosen = [
        name
        for node in body.node
        if state.is_chosen(node)
        for name in (*node.input, *node.output)
        if state.names is None or name in state.names
        if name in inside and name not in constant and inside[name].type.tensor_type.elem_type in _FLOATS
    ]
    added = add_subgraph_outputs(body, known, state) if is_nested else []
    own = [_output(body, name, inside[name].type.tensor_type.elem_type, state) for name in dict.fromkeys(chosen)]
    return added + own


def _output(body: GraphProto, name: str, kind: int, state: SubgraphOutputsState) -> SubgraphOutput:
    result = state.new_name(name)
    flat = f"{result}_flat"
    body.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), f"{result}_shape"))
    body.node.append(helper.make_node("Reshape", [name, f"{result}_shape"], [flat if state.extremes_only else result]))
    if state.extremes_only:
        ends = [f"{result}_{op_type}" for op_type in ("ReduceMin", "ReduceMax")]
        for end in ends:
            body.node.append(helper.make_node(end.rpartition("_")[2], [flat], [end], keepdims=1))
        body.node.append(helper.make_node("Concat", ends, [result], axis=0))
    return SubgraphOutput(name, result, kind)


def _empty(graph: GraphProto, name: str, kind: int) -> str:
    graph.initializer.append(numpy_helper.from_array(np.zeros(0, helper.tensor_dtype_to_np_dtype(kind)), name))
    return name


def _vector(name: str, kind: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [None])


def _body_of(node: NodeProto) -> GraphProto:
    return next(each.g for each in node.attribute if each.type == AttributeProto.GRAPH)


def _pad_results(node: NodeProto, count: int, state: SubgraphOutputsState) -> None:
    """Name the results that a node leaves out: others follow."""
    for place in range(count):
        if place == len(node.output):
            node.output.append(state.new_name("unread"))


def _out_of_if(graph: GraphProto, node: NodeProto, known: Known, state: SubgraphOutputsState) -> list[SubgraphOutput]:
    branches = [each.g for each in node.attribute if each.type == AttributeProto.GRAPH]
    _pad_results(node, len(branches[0].output), state)
    inside = [_outputs_inside(branch, known, state) for branch in branches]
    found = []
    for branch, added in zip(branches, inside, strict=True):
        for output in added:
            for other in branches:
                name = output.result if other is branch else state.new_name(output.tensor)
                if other is not branch:
                    given = _empty(other, f"{name}_none", output.kind)
                    other.node.append(helper.make_node("Identity", [given], [name]))
                other.output.append(_vector(name, output.kind))
            found.append(SubgraphOutput(output.tensor, state.new_name(output.tensor), output.kind))
            node.output.append(found[-1].result)
    return found


def _out_of_loop(graph: GraphProto, node: NodeProto, known: Known, state: SubgraphOutputsState) -> list[SubgraphOutput]:
    body = _body_of(node)
    node.input.extend([""] * (2 - len(node.input)))
    found = []
    for output in _outputs_inside(body, known, state):
        carried = len(node.input) - 2
        _pad_results(node, carried, state)
        outer, before, after = (state.new_name(output.tensor) for _ in range(3))
        node.input.append(_empty(graph, f"{outer}_none", output.kind))
        body.input.append(_vector(before, output.kind))
        body.node.append(helper.make_node("Concat", [before, output.result], [after], axis=0))
        results, given = list(body.output), list(node.output)
        del body.output[:], node.output[:]
        body.output.extend([*results[: 1 + carried], _vector(after, output.kind), *results[1 + carried :]])
        node.output.extend([*given[:carried], outer, *given[carried:]])
        found.append(SubgraphOutput(output.tensor, outer, output.kind))
    return found


def _out_of_scan(graph: GraphProto, node: NodeProto, known: Known, state: SubgraphOutputsState) -> list[SubgraphOutput]:
    body = _body_of(node)
    found = []
    for output in _outputs_inside(body, known, state, is_nested=False):
        _pad_results(node, len(body.output), state)
        body.output.append(_vector(output.result, output.kind))
        stacked, flat = state.new_name(output.tensor), state.new_name(output.tensor)
        node.output.append(stacked)
        for attribute in node.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.append(0)
        graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), f"{flat}_shape"))
        graph.node.append(helper.make_node("Reshape", [stacked, f"{flat}_shape"], [flat]))
        found.append(SubgraphOutput(output.tensor, flat, output.kind))
    return found
