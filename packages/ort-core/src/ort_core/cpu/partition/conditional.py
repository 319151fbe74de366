"""find_conditional(): a partition that is one If, which sizes or small data decide, and its branches compiled.

x -> [nodes that make c] -> If(c) <then {partition}, else {partition}> -> all outputs
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_core.cpu.direct.branch_calls import (
    ComputedCondition,
    Condition,
    FedCondition,
    build_branch_calls,
    has_one_element,
)
from ort_core.plugin import DirectCalls, Rejection, frozen

if TYPE_CHECKING:
    from ort_core.cpu.partition.bodies import Compiled, CompiledBody
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.plugin.ir import Graph, Node, Value

_BRANCHES = {True: "then_branch", False: "else_branch"}


@frozen
class Conditional:
    """An If that computes all outputs of a graph.

    ``node`` is the If, ``program`` computes its condition (``None``: an input is the condition), ``bodies`` are its
    branches by the condition.
    """

    graph: Graph
    node: Node
    program: NativeProgram | None
    bodies: Mapping[bool, CompiledBody[Any]]  # Any: partitions of one kind or another

    def direct_calls(self, sources: Mapping[str, str | np.ndarray], outputs: Sequence[str]) -> DirectCalls | Rejection:
        """Return direct calls that decide natively and run the branch's own.

        Args:
            sources: the feed or the constant of each value that comes from outside, by the value's name.
            outputs: the names of the outputs, in the order of the call.
        """
        condition = self._condition(sources)
        if isinstance(condition, Rejection):
            return condition
        positions = {value.name: index for index, value in enumerate(self.node.outputs) if value is not None}
        others = [name for name in outputs if name not in positions]
        if others:
            return Rejection(f"output {others[0]!r} is none of the If's")
        names: dict[bool, list[str]] = {}
        calls: dict[bool, DirectCalls] = {}
        for taken, body in self.bodies.items():
            given = [_source(value, sources) for value in body.reads]
            missing = [value.name for value, found in zip(body.reads, given, strict=True) if found is None]
            order = [body.made(positions[name]) for name in outputs]
            if missing or None in order:
                return Rejection(f"branch {body.graph.name!r} reads computed values, or passes on what it was given")
            names[taken] = list(dict.fromkeys(found for found in given if isinstance(found, str)))
            own = body.partition.direct_calls([f for f in given if f is not None], [n for n in order if n is not None])
            if isinstance(own, Rejection):
                return Rejection(f"branch {body.graph.name!r}: {own.reason}")
            calls[taken] = own
        return build_branch_calls(condition, names, calls)

    def _condition(self, sources: Mapping[str, str | np.ndarray]) -> Condition | Rejection:
        if self.program is None:
            value = self.node.input(0)
            source = None if value is None else sources.get(value.name)
            return FedCondition(source) if isinstance(source, str) else Rejection("the condition is not a feed")
        found = [_source(value, sources) for value in self.program.inputs]
        given = [source for source in found if source is not None]
        if len(given) < len(found):
            return Rejection("the condition reads what is not a feed")
        return ComputedCondition.of(self.program, given)


def find_conditional(
    graph: Graph, program: NativeProgram | None, bodies: Iterable[CompiledBody[Compiled]]
) -> Conditional | Rejection:
    """Return what a graph chooses, or why it is no choice.

    Args:
        graph: nodes of which ``is_conditional`` holds; its last one is the If.
        program: those nodes, compiled.
        bodies: the compiled bodies, among them the If's.
    """
    node = graph.nodes[-1]
    if set(graph.outputs) != set(node.present_outputs()):
        return Rejection("an output is not of the If")
    own = {body.graph: body for body in bodies}
    branches = {taken: own.get(node.attributes[name].graphs()[0]) for taken, name in _BRANCHES.items()}
    compiled = {taken: body for taken, body in branches.items() if body is not None}
    if len(compiled) < len(_BRANCHES):
        return Rejection("a branch has nothing to compile")
    if graph.nodes[:-1] and program is None:
        return Rejection("what makes the condition runs by numpy kernels")
    return Conditional(graph, node, program, compiled)


def is_conditional(nodes: Sequence[Node]) -> bool:
    """Return whether nodes are an If behind those that make its condition, which has one element."""
    if not nodes:
        return False
    *deciding, node = nodes
    condition = node.input(0)
    if node.domain or node.op_type != "If" or condition is None or (deciding and not has_one_element(condition)):
        return False
    wanted = {condition}
    for each in reversed(deciding):
        if each.subgraphs() or not any(value in wanted for value in each.present_outputs()):
            return False
        wanted.update(each.present_inputs())
    return True


def _source(value: Value, sources: Mapping[str, str | np.ndarray]) -> str | np.ndarray | None:
    return value.constant.array() if value.constant is not None else sources.get(value.name)
