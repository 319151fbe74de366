"""Which nodes fall away with others: those whose every reader falls away."""

from __future__ import annotations

from collections.abc import Iterable

from ort_core.ir.nodes import Node
from ort_core.ir.values import Value


def nodes_only_for(nodes: Iterable[Node]) -> list[Node]:
    """Return ``nodes``, whose outputs nobody will read any more, and all that they alone depended on.

    Nodes of enclosing graphs and nodes whose results a graph returns are not among them.
    """
    falling = dict.fromkeys(nodes)
    waiting = list(falling)
    while waiting:
        reader = waiting.pop()
        for value in reader.present_inputs():
            producer = value.producer
            if producer is None or producer in falling or producer.graph is not reader.graph:
                continue
            if all(_is_unread(made, falling) for made in producer.present_outputs()):
                falling[producer] = None
                waiting.append(producer)
    return list(falling)


def _is_unread(value: Value, falling: dict[Node, None]) -> bool:
    return not value.is_graph_output and all(reader in falling for reader, _ in value.uses)
