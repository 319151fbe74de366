"""learned_ranks(): what the readers of a value imply for its rank where its producer leaves it open.

    y = If(c) <then {Squeeze(x)}, else {Identity(x)}>;  z = LSTM(Unsqueeze(y, 0), ...)   ->   y has rank 2

A reader runs whenever the graph that holds both runs, so that a value of another rank could only be an error. Readers
inside of bodies imply nothing for values around them: the body may never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value

RankOf = Callable[[Value], int | None]
ConstantOf = Callable[[Value | None], Constant | None]

_FIXED = {
    "LSTM": {0: 3, 5: 3, 6: 3},
    "GRU": {0: 3, 5: 3},
    "RNN": {0: 3, 5: 3},
    "Gemm": {0: 2, 1: 2},
}  # by operator: input -> rank
_KEEPING = frozenset(
    {
        "Abs", "Cast", "Clip", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Neg",
        "Not", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Tanh",
    }
)  # fmt: skip
_BY_WEIGHTS = frozenset({"Conv", "ConvTranspose"})


def learned_ranks(graph: Graph, rank_of: RankOf, constant_of: ConstantOf) -> dict[Value, int]:
    """Return the ranks of values of one graph that only their readers tell, found from the last node to the first.

    Args:
        graph: the graph; graphs nested in it are left out.
        rank_of: the rank that is known of a value, or ``None``.
        constant_of: the constant that a value always is, or ``None``.
    """
    found: dict[Value, int] = {}

    def known(value: Value | None) -> int | None:
        return None if value is None else found.get(value, rank_of(value))

    for node in reversed(graph.nodes):
        for value, rank in _implied(node, known, constant_of):
            if value is not None and value.graph is graph and rank >= 0 and known(value) is None:
                found[value] = rank
    return found


def _implied(
    node: Node, known: Callable[[Value | None], int | None], constant_of: ConstantOf
) -> Iterator[tuple[Value | None, int]]:
    """Give (input, rank) for every input of a node whose rank its meaning, or its output's rank, decides."""
    if node.domain:
        return
    result = known(node.outputs[0]) if node.outputs else None
    if node.op_type in _FIXED:
        yield from ((node.input(index), rank) for index, rank in _FIXED[node.op_type].items())
    elif node.op_type in _BY_WEIGHTS:
        weights = known(node.input(1))
        if weights is not None:
            yield node.input(0), weights
    elif node.op_type == "Concat":
        ranks = [rank for rank in (result, *map(known, node.inputs)) if rank is not None]
        if ranks:
            yield from ((value, ranks[0]) for value in node.inputs)
    elif result is not None and node.op_type in _KEEPING:
        yield node.input(0), result
    elif result is not None and node.op_type in ("Squeeze", "Unsqueeze"):
        count = _count_of_axes(node, constant_of)
        if count is not None:
            yield node.input(0), result + (count if node.op_type == "Squeeze" else -count)


def _count_of_axes(node: Node, constant_of: ConstantOf) -> int | None:
    axes = node.attributes.get("axes")
    if axes is not None:
        return len(axes.value) if isinstance(axes.value, tuple) else None
    constant = constant_of(node.input(1))
    return None if constant is None else constant.size
