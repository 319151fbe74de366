"""Graph: a plan as DirectML's structures. Operators are created on the device, which checks each of them.

Small constants become constant nodes where the feature level has them: DirectML may look at their values when it
compiles. Others become inputs that DirectML owns: they follow the plan's inputs, and are handed in once, when the
compiled graph is initialized.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ort_core.plugin import EPFail, OrtError
from ort_ep_directml.abi import dml
from ort_ep_directml.abi.com import ComObject
from ort_ep_directml.abi.hresults import HResultError
from ort_ep_directml.lowering.plan import Fused, GraphPlan, PlanNode, Scalar, Source, Tensor
from ort_ep_directml.schema.operators import OPERATORS, Field
from ort_ep_directml.schema.structs import ARRAY_ELEMENTS, structure_of

CONSTANT_NODE_LEVEL = 0x6200
CONSTANT_NODE_NBYTES = 1024  # shapes, zero points and scalars are below, weights above


@dataclass(slots=True)
class GraphDescription:
    """What ``IDMLDevice1::CompileGraph`` is given; valid while this lives.

    Attributes:
        desc: the structure.
        owned: for the inputs behind those of the plan, the arrays that initialize them, in order.
        operators: created for it.
        kept: memory that the structure points to.
    """

    desc: dml.GraphDesc
    owned: tuple[np.ndarray, ...]
    operators: list[ComObject] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)

    def close(self) -> None:
        """Give back the operators; the compiled graph does not need them."""
        for operator in self.operators:
            operator.release()
        self.operators.clear()


def describe(plan: GraphPlan, device: ComObject) -> GraphDescription:
    """Return the description of a plan.

    Args:
        plan: the graph.
        device: an ``IDMLDevice``, on which its operators are created.

    Raises:
        EPFail: the device does not take an operator.
        HResultError: it was lost.
    """
    nested = _nested_constants(plan)
    state = _GraphState(plan, nested)
    try:
        for node in plan.nodes:
            state.operators.append(create_operator(device, node, state.kept, state.owned_sources))
    except (HResultError, OrtError):
        state.release()
        raise
    return state.description()


def create_operator(
    device: ComObject, node: PlanNode, kept: list[object], owned: frozenset[Source] = frozenset()
) -> ComObject:
    """Create one operator.

    Args:
        device: an ``IDMLDevice``.
        node: the operator.
        kept: takes the memory that must live as long as the call.
        owned: sources that DirectML owns.

    Raises:
        EPFail: the device does not take it.
        HResultError: it was lost.
    """
    desc = _operator_desc(node, kept, owned)
    try:
        return device.build("CreateOperator", dml.OPERATOR, ctypes.addressof(desc))
    except HResultError as error:
        if error.loses_device:
            raise
        whose = node.origin or "the graph"
        raise EPFail(f"DirectML does not take an operator of {whose}: {node.text()}: {error}") from error


def refusal_of(device: ComObject, node: PlanNode) -> str | None:
    """Return why a device does not take an operator, or ``None``.

    Args:
        device: an ``IDMLDevice``.
        node: the operator.

    Raises:
        HResultError: it was lost.
    """
    try:
        create_operator(device, node, []).release()
    except EPFail as error:
        return f"this DirectML, of an older feature level, does not take it: {error}"
    return None


def _nested_constants(plan: GraphPlan) -> frozenset[int]:
    """Return the constants that become nodes."""
    if plan.level < CONSTANT_NODE_LEVEL:
        return frozenset()
    small = (place for place, each in enumerate(plan.constants) if each.array.nbytes <= CONSTANT_NODE_NBYTES)
    return frozenset(small)


class _GraphState:
    """The structures of a graph while they are filled."""

    def __init__(self, plan: GraphPlan, nested: frozenset[int]) -> None:
        self.plan = plan
        self.operators: list[ComObject] = []
        self.kept: list[object] = []
        owned = [place for place in range(len(plan.constants)) if place not in nested]
        self._owned = {place: len(plan.inputs) + index for index, place in enumerate(owned)}
        self._nested = {place: len(plan.nodes) + index for index, place in enumerate(sorted(nested))}
        self.owned_sources = frozenset(Source("constant", place) for place in owned)

    def description(self) -> GraphDescription:
        nodes = [*self._operator_nodes(), *self._constant_nodes()]
        entering, within = self._edges()
        leaving = self._leaving()
        desc = dml.GraphDesc(
            len(self.plan.inputs) + len(self._owned),
            len(self.plan.outputs),
            len(nodes),
            self._array(dml.GraphNodeDesc, nodes),
            len(entering),
            self._array(dml.GraphEdgeDesc, entering),
            len(leaving),
            self._array(dml.GraphEdgeDesc, leaving),
            len(within),
            self._array(dml.GraphEdgeDesc, within),
        )
        owned = tuple(self.plan.constants[place].array for place in self._owned)
        return GraphDescription(desc, owned, self.operators, self.kept)

    def release(self) -> None:
        for operator in self.operators:
            operator.release()

    def _operator_nodes(self) -> list[dml.GraphNodeDesc]:
        found = []
        for node, operator in zip(self.plan.nodes, self.operators, strict=True):
            desc = dml.OperatorGraphNodeDesc(operator.address, node.kind.encode())
            found.append(dml.GraphNodeDesc(dml.GRAPH_NODE_TYPE_OPERATOR, _kept(self.kept, desc)))
        return found

    def _constant_nodes(self) -> list[dml.GraphNodeDesc]:
        found = []
        for place in self._nested:
            array = np.ascontiguousarray(self.plan.constants[place].array)
            self.kept.append(array)
            desc = dml.ConstantDataGraphNodeDesc(array.ctypes.data, array.nbytes, b"constant")
            found.append(dml.GraphNodeDesc(dml.GRAPH_NODE_TYPE_CONSTANT, _kept(self.kept, desc)))
        return found

    def _edges(self) -> tuple[list[dml.GraphEdgeDesc], list[dml.GraphEdgeDesc]]:
        """Return the edges from inputs of the graph, and those between nodes."""
        entering: list[dml.GraphEdgeDesc] = []
        within: list[dml.GraphEdgeDesc] = []
        for place, node in enumerate(self.plan.nodes):
            for port, source in enumerate(node.sources):
                if source is None:
                    continue
                begin = self._graph_input(source)
                if begin is not None:
                    desc = dml.InputGraphEdgeDesc(begin, place, port, None)
                    entering.append(self._edge(dml.GRAPH_EDGE_TYPE_INPUT, desc))
                else:
                    begin = source.index if source.kind == "node" else self._nested[source.index]
                    edge = dml.IntermediateGraphEdgeDesc(begin, source.output, place, port, None)
                    within.append(self._edge(dml.GRAPH_EDGE_TYPE_INTERMEDIATE, edge))
        return entering, within

    def _leaving(self) -> list[dml.GraphEdgeDesc]:
        ends = [port.source for port in self.plan.outputs]
        descs = [dml.OutputGraphEdgeDesc(end.index, end.output, place, None) for place, end in enumerate(ends)]
        return [self._edge(dml.GRAPH_EDGE_TYPE_OUTPUT, desc) for desc in descs]

    def _graph_input(self, source: Source) -> int | None:
        if source.kind == "input":
            return source.index
        return self._owned.get(source.index) if source.kind == "constant" else None

    def _edge(self, kind: int, desc: ctypes.Structure) -> dml.GraphEdgeDesc:
        return dml.GraphEdgeDesc(kind, _kept(self.kept, desc))

    def _array(self, kind: type[ctypes.Structure], elements: Sequence[ctypes.Structure]) -> int | None:
        return _kept(self.kept, (kind * len(elements))(*elements)) if elements else None


def _operator_desc(node: PlanNode, kept: list[object], owned: frozenset[Source]) -> dml.OperatorDesc:
    schema = OPERATORS[node.kind]
    desc = structure_of(node.kind)()
    sources = iter(node.sources)
    counts: dict[str, int] = {}
    for each in schema.fields:
        value = node.fields.get(each.name)
        taken = [next(sources) for _ in range(_port_count(each, value))] if each.is_input else []
        if each.count and isinstance(value, tuple):
            counts[each.count] = len(value)
        if each.kind != "count" and value is not None:
            setattr(desc, each.name, _c_value(each, value, [source in owned for source in taken], kept))
    for name, count in counts.items():
        setattr(desc, name, count)
    return dml.OperatorDesc(schema.number, _kept(kept, desc))


def _port_count(each: Field, value: object) -> int:
    return len(value) if each.kind == "ins" and isinstance(value, tuple) else 1


def _c_value(each: Field, value: object, owned: Sequence[bool], kept: list[object]) -> object:
    """Return a field as C has it: a number, a structure, or the address of one."""
    if isinstance(value, Tensor):
        return _kept(kept, tensor_desc(value, kept, is_owned=any(owned)))
    if each.kind in ("ins", "outs"):
        assert isinstance(value, tuple), each
        marks = owned or [False] * len(value)
        tensors = [tensor_desc(t, kept, is_owned=mark) for t, mark in zip(value, marks, strict=True)]
        return _kept(kept, (dml.TensorDesc * len(tensors))(*tensors))
    if each.kind == "ops":
        assert isinstance(value, tuple), each
        return _kept(kept, (dml.OperatorDesc * len(value))(*[_fused_desc(one, kept) for one in value]))
    if isinstance(value, Fused):
        return _kept(kept, _fused_desc(value, kept))
    if each.kind in ARRAY_ELEMENTS:
        assert isinstance(value, tuple), each
        return _kept(kept, (ARRAY_ELEMENTS[each.kind] * len(value))(*value))  # type: ignore[operator]  # a ctypes type
    if isinstance(value, Scalar):
        return dml.ScalarUnion(UInt64=value.bits)
    if each.kind == "scale_bias":
        assert isinstance(value, tuple), each
        return _kept(kept, dml.ScaleBias(*value))
    if each.kind == "size2d":
        assert isinstance(value, tuple), each
        return dml.Size2D(*value)
    return value


def tensor_desc(tensor: Tensor, kept: list[object], *, is_owned: bool = False) -> dml.TensorDesc:
    """Return the structure of a tensor; ``kept`` takes what it points to."""
    rank = len(tensor.sizes)
    array = ctypes.c_uint32 * rank
    strides = None if tensor.strides is None else _kept(kept, array(*tensor.strides))
    flags = dml.TENSOR_FLAG_OWNED_BY_DML if is_owned else dml.TENSOR_FLAG_NONE
    desc = dml.BufferTensorDesc(tensor.dtype, flags, rank, _kept(kept, array(*tensor.sizes)), strides, tensor.nbytes, 0)
    return dml.TensorDesc(dml.TENSOR_TYPE_BUFFER, _kept(kept, desc))


def _fused_desc(fused: Fused, kept: list[object]) -> dml.OperatorDesc:
    desc = structure_of(fused.kind)()
    for name, value in fused.fields.items():
        setattr(desc, name, value)
    return dml.OperatorDesc(OPERATORS[fused.kind].number, _kept(kept, desc))


def _kept(kept: list[object], memory: ctypes.Structure | ctypes.Array[Any]) -> int:  # Any: of any elements
    kept.append(memory)
    return ctypes.addressof(memory)
