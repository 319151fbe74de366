"""How each node of a CPU partition runs: native, with the step that took it in, or by a numpy kernel, with the reason.

Everything is read off what compiling left: the parts in running order, the operators of each native step, and the
refusals. A step is told as ``PART.STEP OPERATORS``, as ``ort inspect --steps`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ort_core.cpu.lowering.steps import operators_text
from ort_core.plugin import NodeExecution, body_path, output_names
from ort_core.plugin.ir import Graph, Node, TensorType, Value, walk

if TYPE_CHECKING:
    from ort_core.cpu.partition.segments import PartitionSegment
    from ort_core.cpu.program.program import NativeProgram

Bodies = Mapping[tuple[str, ...], Sequence[NodeExecution]]
NATIVE, NUMPY = "native", "numpy"
MAX_STEPS = 3  # told of a node: what is cheap is computed again wherever it is read
TAKEN_IN = "no step of its own: taken in by what reads it"  # as a place in memory, or into its formula
KNOWN = "its result follows from sizes"
INTERPRETED = "interpreted"
BODIES = "control flow is followed step by step; its bodies are compiled by themselves"
TOO_FEW = "alone, or with the few nodes beside it, it is not worth a native program"
PLAIN_BODIES = "control flow is followed step by step; nothing in its bodies is compiled"
TOO_DEEP = "bodies are nested too deeply to be compiled"


def executions_of(
    graph: Graph,
    steps: Sequence[PartitionSegment],
    refusals: Mapping[Node, str],
    is_known: Callable[[Node], bool],
    compiled: Bodies,
    plain: Bodies,
) -> list[NodeExecution]:
    """Return how the nodes of a partition's graph run, those of bodies behind them.

    Args:
        graph: the graph that was compiled.
        steps: the parts of the partition in running order.
        refusals: why nodes were not lowered.
        is_known: whether all results of a node follow from sizes.
        compiled: how the nodes of compiled bodies run, by the body's path.
        plain: how those of the other bodies do.
    """
    part_of = {name: part for part in enumerate(steps) for node in part[1].kernels.nodes for name in output_names(node)}
    computing = {
        node: names
        for n, part in enumerate(steps)
        if part.program
        for node, names in steps_by_node(part.program, n).items()
    }
    taken_by = _taken_by(graph, computing)
    given_ways = _given_ways(steps)
    found = []
    for node in graph:
        number, step = next((part_of[name] for name in output_names(node) if name in part_of), (0, None))
        if step is not None and step.program is not None:
            known = node not in computing and is_known(node)
            reason = KNOWN if known else "" if node in computing else TAKEN_IN
            slow = given_ways.get(next(iter(output_names(node)), ""))
            reason = reason if slow is None else slow
            taken = "" if known else _several(taken_by[node])
            found.append(NodeExecution.of(node, NATIVE, taken, reason, is_plain=slow is not None))
        elif step is not None and step.call is not None:
            found.append(NodeExecution.of(node, NATIVE, f"{number} {node.op_type}, a native call"))
        elif any(body_path(body) in compiled for body in node.subgraphs()):
            found.append(NodeExecution.of(node, INTERPRETED, reason=BODIES))
        elif next(iter(node.subgraphs()), None) is not None:  # a graph without nodes is falsy
            found.append(_plain(node, PLAIN_BODIES))
        else:
            found.append(_plain(node, refusals.get(node) or (f"{KNOWN}; {TOO_FEW}" if is_known(node) else TOO_FEW)))
    return [*found, *_inner(graph, {**compiled, **plain})]


def _given_ways(steps: Sequence[PartitionSegment]) -> dict[str, str]:
    """Return why programs have not fitted runs so far, by the first output of the node that did not."""
    found: dict[str, str] = {}
    for relief in [step.relief for step in steps if step.relief is not None]:
        if relief.partition is not None:
            inner = relief.partition.executions()
            found.update((each.outputs[0], each.reason) for each in inner if each.how == NATIVE and each.is_plain)
        found.update(relief.reasons)
    return found


def _taken_by(graph: Graph, computing: Mapping[Node, list[str]]) -> dict[Node, tuple[str, ...]]:
    """Return the steps that compute each node, of one without those that compute what reads it."""
    found: dict[Node, tuple[str, ...]] = {}
    for node in reversed(list(graph)):
        readers = [reader for value in node.present_outputs() for reader in value.consumers()]
        names = computing.get(node) or [name for reader in readers for name in found.get(reader, ())]
        found[node] = tuple(dict.fromkeys(names))[: MAX_STEPS + 1]
    return found


def steps_by_node(program: NativeProgram, part: int) -> dict[Node, list[str]]:
    """Return for each node that steps of a program compute the names of these, in order."""
    found: dict[Node, list[str]] = {}
    for number, step in enumerate(program.steps):
        name = f"{part}.{number} {operators_text(step.operators)}"
        for node in dict.fromkeys(each for each in step.operators if isinstance(each, Node)):
            found.setdefault(node, []).append(name)
    return found


def _several(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_STEPS]) + (" and others" if len(names) > MAX_STEPS else "")


def _inner(graph: Graph, bodies: Bodies) -> list[NodeExecution]:
    found = [replace(each, path=(*path, *each.path)) for path, inner in bodies.items() for each in inner]
    told = {each.path for each in found} | set(bodies)
    left = [node for node in walk(graph) if node.graph is not graph and body_path(node.graph) not in told]
    return [*found, *(_plain(node, TOO_DEEP, body_path(node.graph)) for node in left)]


def _plain(node: Node, reason: str, path: tuple[str, ...] = ()) -> NodeExecution:
    return NodeExecution.of(node, NUMPY, "", named_reason(node, reason), path, is_plain=True)


def named_reason(node: Node, reason: str) -> str:
    """Return a reason with the operator and its types, without which it does not stand for itself.

    ``Compress is not generated`` becomes ``Compress of float and bool is not generated``; a reason that does not begin
    with the operator stands behind it and a colon.
    """
    values = tuple(node.present_inputs()) or tuple(node.present_outputs())
    types = list(dict.fromkeys(map(_type_text, values)))
    if not types or reason.startswith(f"{node.op_type} of "):
        return reason
    listed = " and ".join(filter(None, (", ".join(types[:-1]), types[-1])))
    if reason.startswith(f"{node.op_type} "):
        return f"{node.op_type} of {listed}{reason.removeprefix(node.op_type)}"
    return f"{node.op_type} of {listed}: {reason}"


def _type_text(value: Value) -> str:
    if value.type is None:
        return "an unknown type"
    return value.type.dtype.text if isinstance(value.type, TensorType) else str(value.type)
