"""Nodes that are native but no part of a program: their operands are strings, or the size of their result is data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.partition.admission import CALLS
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import Rejection
from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import RunGuard, RuntimeValue

LEAST_ROUNDS = 8  # fewer are run sooner one by one, where writing down addresses takes as long as 8 rounds by Python


class NativeCall(Protocol):
    """Some nodes compiled as one call."""

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The values that it is given."""

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the results that are read outside, in order; ``None`` where the reference kernels must run."""


def native_calls(
    graph: Graph, target: Target, pool: ThreadPool, *, short_cuts: bool = True
) -> dict[tuple[Node, ...], NativeCall]:
    """Return the calls by the nodes that each of them runs."""
    found: dict[tuple[Node, ...], NativeCall] = {}
    for node in graph:
        if node.domain or node.op_type not in CALLS:
            continue
        if node.op_type == "NonMaxSuppression":
            from ort_core.cpu.partition.suppression import Suppression  # few models have one

            found[(node,)] = Suppression(node, target, pool, is_direct=short_cuts)
        k = node.input(1) if node.op_type == "TopK" else None
        if k is not None and k.constant is None:
            from ort_core.cpu.partition.selection import selection_of  # as above

            selection = selection_of(node, target, pool)
            if not isinstance(selection, Rejection):
                found[(node,)] = selection
        if node.op_type == "TfIdfVectorizer":
            from ort_core.cpu.texts.text_counts import TextCounts, text_chain  # as above

            chain = text_chain(node, graph)
            if not isinstance(chain, Rejection):
                found[chain.nodes] = TextCounts(chain, target, pool)
    return found


def has_rounds(nodes: Sequence[Node]) -> bool:
    """Return whether nodes are one Loop or Scan, whose rounds may be native once its body is compiled."""
    return len(nodes) == 1 and not nodes[0].domain and nodes[0].op_type in ("Loop", "Scan")


def is_repeated(node: Node, least: int = LEAST_ROUNDS) -> bool:
    """Return whether a node is a Loop or Scan that may run so many rounds."""
    trips = node.inputs[0].constant if node.op_type == "Loop" and node.inputs and node.inputs[0] is not None else None
    return has_rounds([node]) and (trips is None or bool((trips.array() >= least).all()))
