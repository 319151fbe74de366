"""BranchesByRank: an If whose readers allow the result of one branch only is decided before the run.

    y = If(Shape(x)[-1] == 1) <then {Squeeze(x, -1)}, else {Identity(x)}>;  z = Conv(y, w)
                                                                   ->  the then branch, where y can only have its rank
    y = If(Size(Shape(x)) != 2) <then {Unsqueeze(x, 0)}, else {Identity(x)}>;  h = LSTM(Unsqueeze(y, 0), ...)
                                                                   ->  the else branch, where x may not have rank 1

Exporters write both wherever a program asked for ``x.dim()`` or called ``x.squeeze(d)``. A branch is only taken for
decided where every run in which the rewritten model succeeds would have taken it: then the condition follows from the
rank that readers demand, or from the size that Squeeze itself demands. Other runs were errors, and stay so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.ops.reader_ranks import learned_ranks
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.rewrite.matcher import constant_of

_NAME = "branch by rank"
_BRANCHES = {"then_branch": True, "else_branch": False}


@frozen
class _Result:
    """What a branch returns: ``rank(source) + shift`` axes, ``source`` squeezed on the way at ``squeezed`` axes."""

    source: Value
    shift: int
    squeezed: frozenset[tuple[Value, int]]


class BranchesByRank(Pass):
    """Give an If that its readers decide a constant condition; ConstantFolding inlines the branch."""

    name = "BranchesByRank"
    before = ("ConstantFolding",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every If that has one output whose rank is demanded."""
        for graph in context.graphs_with(("If",)):
            undecided = [node for node in context.nodes_of(graph, ("If",)) if _is_undecided(node)]
            demanded = learned_ranks(graph, _certain_rank, constant_of) if undecided else {}
            for node in undecided:
                decision = _decide(context, node, demanded)
                if isinstance(decision, Rejection):
                    record.refused(_NAME, decision, node)
                else:
                    node.set_input(0, graph.new_constant(np.array(decision), "decided"))
                    record.changed(_NAME)


def _is_undecided(node: Node) -> bool:
    return _is_op(node, "If") and node.input(0) is not None and constant_of(node.input(0)) is None


def _certain_rank(value: Value) -> int | None:
    """Return the rank of a constant: ranks that are declared somewhere may be wrong without harm to a run."""
    constant = constant_of(value)
    return None if constant is None else len(constant.shape)


def _decide(context: PassContext, node: Node, demanded: dict[Value, int]) -> bool | Rejection:
    for index, output in enumerate(node.outputs):
        rank = None if output is None else demanded.get(output)
        if rank is not None:
            return _decide_by(context, node, index, rank)
    return Rejection("no reader demands a rank of a result", node)


def _decide_by(context: PassContext, node: Node, index: int, rank: int) -> bool | Rejection:
    results = {taken: _result_of(node, name, index) for name, taken in _BRANCHES.items()}
    possible = {
        taken: result for taken, result in results.items() if result is None or _may_have(result, rank, node, taken)
    }
    if len(possible) != 1:
        return Rejection(f"{len(possible)} branches may return the {rank} axes that readers demand", node)
    ((taken, result),) = possible.items()
    if result is None:
        return Rejection("the branch does more than add or take away axes", node)
    if not _implies(context, node, result, rank, taken):
        return Rejection("the condition does not follow from the branch's result", node)
    return taken


def _may_have(result: _Result, rank: int, node: Node, taken: bool) -> bool:
    source_rank = rank - result.shift
    ranks = _ranks_of(result.source)
    return (ranks is None or source_rank in ranks) and _at_rank(node.input(0), result.source, source_rank) is not (
        not taken
    )


def _implies(context: PassContext, node: Node, result: _Result, rank: int, taken: bool) -> bool:
    """Return whether a run in which the branch gives that rank is one whose condition chooses the branch."""
    if _at_rank(node.input(0), result.source, rank - result.shift) is taken:
        return True
    tested = _tested_for_one(context, node.input(0))
    return taken and tested is not None and any(_size(value, axis) == tested for value, axis in result.squeezed)


# ---- results of branches


def _result_of(node: Node, name: str, index: int) -> _Result | None:
    branch = node.attributes[name].graphs()[0]
    if index >= len(branch.outputs):
        return None
    value, shift = branch.outputs[index], 0
    squeezed: set[tuple[Value, int]] = set()
    while (producer := value.producer) is not None and producer.graph is branch:
        if _is_op(producer, "Squeeze", "Unsqueeze"):
            axes = _axes_of(producer)
            source = producer.input(0)
            if axes is None or source is None:
                return None
            if producer.op_type == "Squeeze":
                squeezed.update((source, axis) for axis in axes)
            shift += len(axes) if producer.op_type == "Unsqueeze" else -len(axes)
        elif not _is_op(producer, "Identity"):
            return None
        value = producer.inputs[0] or value
    return _Result(value, shift, frozenset(squeezed))


def _axes_of(node: Node) -> tuple[int, ...] | None:
    own = node.ints_attribute("axes")
    if own is not None:
        return own
    constant = constant_of(node.input(1))
    return None if constant is None else tuple(int(axis) for axis in constant.array().reshape(-1))


def _ranks_of(value: Value) -> frozenset[int] | None:
    """Return the ranks that a value may have, ``None`` where nothing is known."""
    node = value.producer
    if node is None or not _is_op(node, "If"):
        return None if value.rank is None else frozenset((value.rank,))
    found: set[int] = set()
    for name in _BRANCHES:
        result = _result_of(node, name, value.output_index)
        ranks = None if result is None else _ranks_of(result.source)
        if result is None or ranks is None:
            return None
        found.update(rank + result.shift for rank in ranks)
    return frozenset(found)


# ---- conditions


def _at_rank(condition: Value | None, source: Value, rank: int) -> bool | None:
    """Return a condition that compares the rank of ``source``, for that rank; ``None`` for any other condition."""
    node = None if condition is None else condition.producer
    if node is None:
        return None
    if _is_op(node, "Not"):
        found = _at_rank(node.input(0), source, rank)
        return None if found is None else not found
    if _is_op(node, "Equal"):
        for one, other in _both_ways(node):
            constant = constant_of(other)
            if constant is not None and constant.size == 1 and _rank_source(one) is source:
                return bool(constant.scalar() == rank)
    return None


def _rank_source(value: Value | None) -> Value | None:
    """Return x for ``Size(Shape(x))``."""
    size = None if value is None else value.producer
    shape = _producer_of_input(size) if size is not None and _is_op(size, "Size") else None
    is_whole = shape is not None and _is_op(shape, "Shape") and not {"start", "end"} & set(shape.attributes)
    return shape.input(0) if is_whole and shape is not None else None


def _tested_for_one(context: PassContext, condition: Value | None) -> object | None:
    """Return the size d of a condition ``d == 1``."""
    node = None if condition is None else condition.producer
    if node is None or not _is_op(node, "Equal"):
        return None
    for one, other in _both_ways(node):
        constant = constant_of(other)
        known = None if one is None else (context.values or {}).get(one)
        if constant is not None and constant.size == 1 and constant.scalar() == 1 and known is not None:
            return known.reshape(-1)[0] if known.size == 1 else None
    return None


def _size(value: Value, axis: int) -> object | None:
    shape = value.shape
    return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]


def _both_ways(node: Node) -> Iterator[tuple[Value | None, Value | None]]:
    yield node.input(0), node.input(1)
    yield node.input(1), node.input(0)


def _producer_of_input(node: Node) -> Node | None:
    value = node.input(0)
    return None if value is None else value.producer


def _is_op(node: Node, *op_types: str) -> bool:
    return node.domain == "" and node.op_type in op_types
