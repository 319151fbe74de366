"""Lowered: the program of a claim, from its nodes and border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, sizes_of
from ort_ep_coreml.lowering.table import get_rule
from ort_ep_coreml.mil import (
    INT32_LIMITS,
    MIL_TYPES,
    STORED_WIDE,
    MilOperation,
    MilPort,
    MilProgram,
    MilState,
    Operand,
    Ref,
)


def lower(
    context: LoweringContext,
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    states: Mapping[Value, MilState] = MappingProxyType({}),
) -> MilProgram:
    """Return the program that computes some nodes.

    Args:
        context: the graph; values from outside of the claim are those of ``inputs``.
        nodes: in topological order; rules hold for each.
        inputs: what the claim reads, constants left out; those that nothing reads get no port.
        outputs: what it gives.
        states: what the model keeps, by the input that it stands for.
    """
    to = EmissionState(context, ())
    features = {value: to.fresh(value.name) for value in inputs}
    results = [to.fresh(value.name) for value in outputs]
    ports = {value: _port(index, name, value) for index, (value, name) in enumerate(features.items())}
    for value, port in ports.items():
        to.bind(value, _read(to, port, states[value]) if value in states else _entered(to, port))
    for node in nodes:
        if all(value in context.known for value in node.present_outputs()):
            continue
        to.begin(node)
        found = get_rule(node).lower(to, node)
        for result, operand in zip(node.outputs, found if isinstance(found, list) else [found], strict=False):
            if result is not None:
                to.bind(result, operand)
    kept_inside = {state.output: features[value] for value, state in states.items()}
    for place, (value, name) in enumerate(zip(outputs, results, strict=True)):
        is_state = place in kept_inside
        to.operations.append(_written(to, value, name, kept_inside[place]) if is_state else _given(to, value, name))
    operations = _needed(to.operations, results)
    read = {operand.name for each in operations for operand in _refs(each)}
    kept = [value for value in inputs if ports[value].feature in read and value not in states]
    watched = [value for value in to.limits if value in ports and ports[value].feature not in read]
    given = [_port(index, name, value) for index, (value, name) in enumerate(zip(outputs, results, strict=True))]
    return MilProgram(
        tuple(_limited(ports[value], to, value) for value in kept),
        operations,
        tuple(port for port in given if port.index not in kept_inside),
        tuple(replace(state, feature=features[value]) for value, state in states.items()),
        tuple(_limited(ports[value], to, value) for value in watched),
    )


def _read(to: EmissionState, port: MilPort, state: MilState) -> Operand:
    found = to.emit("read_state", input=Ref(port.feature))
    return to.emit("cast", x=found, dtype="fp32") if state.dtype is DataType.FLOAT else found


def _written(to: EmissionState, value: Value, name: str, feature: str) -> MilOperation:
    found = to.operand(value)
    if dtype_of(value) is DataType.FLOAT:
        found = to.emit("cast", x=found, dtype="fp16")
    return MilOperation("coreml_update_state", {"state": Ref(feature), "value": found}, (name,))


def _port(index: int, name: str, value: Value) -> MilPort:
    dtype = dtype_of(value)
    assert dtype is not None, "rules refuse values without an element type"
    return MilPort(index, name, dtype, sizes_of(value), INT32_LIMITS if dtype is DataType.INT64 else None)


def _limited(port: MilPort, to: EmissionState, value: Value) -> MilPort:
    limits = to.limits.get(value, port.limits)
    return MilPort(port.index, port.feature, port.dtype, port.shape, limits)


def _entered(to: EmissionState, port: MilPort) -> Operand:
    """Return an input as the claim reads it: scalars and booleans are stored otherwise at the border."""
    found: Ref = Ref(port.feature)
    if not port.shape:
        found = to.emit("squeeze", x=found, axes=np.array([0], np.int32))
    return to.emit("cast", x=found, dtype=MIL_TYPES[port.dtype]) if port.dtype in STORED_WIDE else found


def _given(to: EmissionState, value: Value, name: str) -> MilOperation:
    if dtype_of(value) in STORED_WIDE:
        return MilOperation("cast", {"x": _left(to, value), "dtype": "int32"}, (name,))
    return MilOperation("identity", {"x": _left(to, value)}, (name,))


def _left(to: EmissionState, value: Value) -> Operand:
    found = to.operand(value)
    return to.emit("expand_dims", x=found, axes=np.array([0], np.int32)) if value.shape == () else found


def _needed(operations: Sequence[MilOperation], results: Sequence[str]) -> tuple[MilOperation, ...]:
    """Return the operations that results depend on."""
    wanted, kept = set(results), []
    for operation in reversed(operations):
        if wanted.intersection(operation.outputs):
            kept.append(operation)
            wanted.update(ref.name for ref in _refs(operation))
    return tuple(reversed(kept))


def _refs(operation: MilOperation) -> list[Ref]:
    flat = [each for value in operation.inputs.values() for each in (value if isinstance(value, tuple) else (value,))]
    return [each for each in flat if isinstance(each, Ref)]
