"""NodeExecution: how a compiled partition runs one node: by which kind of code, in which step, and why not better.

Values keep their names through rewrites, so nodes are told by the names of what they compute. Those of different bodies
may be the same: ``path`` says which bodies are around a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ort_core.frozen import frozen

if TYPE_CHECKING:
    from ort_core.ir.graph import Graph
    from ort_core.ir.nodes import Node


@frozen
class NodeExecution:
    """How one node of a partition's graph runs.

    Attributes:
        name: the node's name.
        op_type: its operator.
        domain: the domain of that.
        outputs: the names of the values that it computes.
        how: the provider's word for the kind of code, such as ``native`` or ``numpy``.
        step: what takes the node in, as the provider lists its steps; empty where it has no step.
        reason: why it has no step, or does not run in a better way; else empty.
        path: the bodies around it inside the partition, outermost first, as ``body_path`` names them.
        replaces: names of the values inside, where the node was made of others.
        is_plain: whether the provider has a better way, which ``reason`` says why not.
    """

    name: str
    op_type: str
    domain: str
    outputs: tuple[str, ...]
    how: str
    step: str = ""
    reason: str = ""
    path: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    is_plain: bool = False

    @classmethod
    def of(
        cls, node: Node, how: str, step: str = "", reason: str = "", path: tuple[str, ...] = (), *,
        is_plain: bool = False,
    ) -> NodeExecution:  # fmt: skip
        """Return how a node runs; the other facts are read off the node."""
        inside = tuple(_values_inside(node))
        return cls(node.name, node.op_type, node.domain, output_names(node), how, step, reason, path, inside, is_plain)

    def __str__(self) -> str:
        return ": ".join(each for each in (self.how, self.step, self.reason) if each)


def output_names(node: Node) -> tuple[str, ...]:
    """Return the names of what a node computes."""
    return tuple(value.name for value in node.present_outputs())


def body_path(graph: Graph | None) -> tuple[str, ...]:
    """Return the bodies that a nested graph lies in, its own included: ``VALUE.ATTRIBUTE`` of the nodes around it."""
    path: list[str] = []
    while graph is not None and graph.owner is not None:
        owner = graph.owner
        found = next((a.name for a in owner.attributes.values() if any(each is graph for each in a.graphs())), "body")
        path.append(f"{next(iter(output_names(owner)), owner.name)}.{found}")
        graph = owner.graph
    return tuple(reversed(path))


def _values_inside(node: Node) -> Iterator[str]:
    if node.body is None:
        return
    for inner in node.body:
        yield from output_names(inner)
        yield from _values_inside(inner)
