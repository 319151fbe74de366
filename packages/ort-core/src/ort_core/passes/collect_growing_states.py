"""GrowingStates: a state of a Loop that each round only makes longer piles up as a result of the Loop instead.

    y = Loop(n, c, x) { p = ...;  t = Concat(s, p) }   ->   all = Loop(n, c) { p = ... };  y = Concat(x, Rows(all))

A round then copies its own part and not all that came before, and the other states keep their shapes, so that rounds
can be native. Parts may stand in front of the state as well (their last round comes first), and a round may read of the
state

- its last rows (``ids[:, -1]``): these few are carried on alone;
- its sizes (``Shape``): they follow from the number of the round.

Results of rounds pile up only if all have one shape, so a part must have sizes that the graph around the Loop knows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import Shape, TensorType
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.gather_strided_slices import integers_of
from ort_core.passes.loop_edits import (
    ALLOWS_EMPTY_SINCE,
    BACKWARD_SINCE,
    EVERY_ROW,
    FIRST_STATE,
    STATELESS_SINCE,
    LoopEditState,
    is_fixed,
    needs_sizes,
    outer_symbols,
)

_NAME = "growing state"
BROADCASTS_SINCE = 7  # opset
MAX_LINKS = 6  # nodes from a state to what a round leaves of it: programs make two or three
MAX_WINDOW = 64  # last rows that are carried on: each round copies them


@frozen
class _Reads:
    """What rounds read of a state besides making it longer.

    Attributes:
        windows: the nodes that read its last rows, each with whether it reads the state as it is left.
        sizes: the nodes that read its sizes, likewise.
        rows: how many of the last rows the former read.
    """

    windows: tuple[tuple[Node, bool], ...]
    sizes: tuple[tuple[Node, bool], ...]
    rows: int


@frozen
class _Growth:
    """How a state grows.

    Attributes:
        place: which state it is.
        axis: along which it grows.
        links: the nodes from the state to what is left of it, the first one first.
        before, after: the parts that a round puts in front of it and behind it.
        reads: what else rounds do with it.
    """

    place: int
    axis: int
    links: tuple[Node, ...]
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    reads: _Reads


class GrowingStates(Pass):
    """Collect what rounds append to a state."""

    name = "GrowingStates"
    after = ("ConstantFolding",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every state of every Loop."""
        for graph in context.graphs_with(("Loop",)):
            for node in [each for each in context.nodes_of(graph, ("Loop",)) if each.domain == ""]:
                self._visit(node, context.opset(node), record)

    def _visit(self, node: Node, opset: int, record: PassRecordState) -> None:
        body = node.attributes["body"].graphs()[0]
        if len(body.inputs) != len(node.inputs) or len(body.outputs) != 1 + len(node.outputs):
            return
        known, found = outer_symbols(node), list[_Growth]()
        for place in range(len(node.inputs) - FIRST_STATE):
            growth = _growth_of(node, body, place, opset)
            objection = growth if isinstance(growth, Rejection) else _objection(node, growth, opset, known)
            if isinstance(objection, Rejection):
                record.refused(_NAME, objection, node)
            elif isinstance(growth, _Growth):
                found.append(growth)
        gone = [each for each in found if not each.reads.windows]
        if opset < STATELESS_SINCE and len(gone) == len(node.inputs) - FIRST_STATE and found:
            found.remove(gone[0])
            record.refused(_NAME, Rejection(f"before opset {STATELESS_SINCE} a Loop must carry something", node))
        if found:
            _collect(node, found)
            record.changed(_NAME, len(found))


def _growth_of(node: Node, body: Graph, place: int, opset: int) -> _Growth | Rejection:
    """Return how a state grows, or why it is not one that only grows."""
    inside, left = body.inputs[FIRST_STATE + place], body.outputs[1 + place]
    found = _links(left, inside, body, {}, MAX_LINKS)
    joins = [(link, number) for link, number in found or () if link.op_type == "Concat"]
    if found is None or not joins or inside.rank is None:
        return Rejection("a state is not made of the one before by Concat", node)
    axes = {link.int_attribute("axis", 0) % max(1, inside.rank) for link, _ in joins}
    if len(axes) > 1 or node.inputs[FIRST_STATE + place] is None:
        return Rejection("a state grows along several axes", node)
    before: list[Value | None] = []
    after: list[Value | None] = []
    for link, number in joins:
        before[:0], after[len(after) :] = link.inputs[:number], link.inputs[number + 1 :]
    if None in before or None in after or not (before or after):
        return Rejection("a Concat has no such part", node)
    links, (axis,) = tuple(link for link, _ in found), axes
    chain = (inside, *(link.output for link in links))
    if any(value in body.outputs for value in chain[:-1]) or body.outputs.count(left) > 1:
        return Rejection("a state is returned elsewhere, too", node)
    reads = _reads_of(chain, links, axis)
    if reads is None or (reads.windows and (before or opset < BACKWARD_SINCE)):
        return Rejection("a round reads more of a state than its end", node)
    return _Growth(place, axis, links, tuple(v for v in before if v), tuple(v for v in after if v), reads)


def _links(
    value: Value, inside: Value, body: Graph, known: dict[Value, tuple[tuple[Node, int], ...] | None], most: int
) -> tuple[tuple[Node, int], ...] | None:
    """Return the nodes that lead from a state to a value, each with the number of the input by which it does."""
    if value is inside:
        return ()
    node = value.producer
    if not most or node is None or node.graph is not body or node.domain or node.op_type not in ("Identity", "Concat"):
        return None
    if value not in known:
        ways = [(n, None if v is None else _links(v, inside, body, known, most - 1)) for n, v in enumerate(node.inputs)]
        found = [(*way, (node, number)) for number, way in ways if way is not None]
        known[value] = found[0] if len(found) == 1 else None
    return known[value]


def _reads_of(chain: Sequence[Value], links: Sequence[Node], axis: int) -> _Reads | None:
    """Return what reads the values from a state to what is left of it, ``None`` where that is more than the end."""
    windows, sizes, most = list[tuple[Node, bool]](), list[tuple[Node, bool]](), 0
    last = max(number for number, link in enumerate(links, 1) if link.op_type == "Concat")
    for number, value in enumerate(chain):
        for reader, index in value.uses:
            if reader in links:
                continue
            if number not in (0, last) or reader.graph is not links[0].graph or reader.domain:
                return None
            rows = _rows_read(reader, index, axis, chain[0].rank or 0)
            most = max(most, rows)
            if reader.op_type == "Shape":
                sizes.append((reader, number > 0))
            elif rows:
                windows.append((reader, number > 0))
            else:
                return None
    return _Reads(tuple(windows), tuple(sizes), most)


def _rows_read(node: Node, index: int, axis: int, rank: int) -> int:
    """Return how many last rows along an axis a node reads of its data, 0 where it may read others."""
    if index:
        return 0
    if node.op_type == "Gather" and node.int_attribute("axis", 0) % rank == axis:
        places = integers_of(node.input(1))
        rows = -min(places) if places and max(places) < 0 else 0
    elif node.op_type == "Slice":
        rows = _rows_of_slice(node, axis, rank)
    else:
        rows = 0
    return rows if rows <= MAX_WINDOW else 0


def _rows_of_slice(node: Node, axis: int, rank: int) -> int:
    starts, ends, axes = (integers_of(node.input(place)) for place in (1, 2, 3))
    steps = integers_of(node.input(4)) if node.input(4) is not None else (1,) * len(starts or ())
    if starts is None or ends is None or axes is None or steps is None:
        return 0
    found = [(s, e, step) for s, e, a, step in zip(starts, ends, axes, steps, strict=False) if a % rank == axis]
    if len(found) != 1 or not len(starts) == len(ends) == len(axes) == len(steps):
        return 0
    ((start, end, step),) = found
    return -start if start < 0 < step and (end < 0 or end >= np.iinfo(np.int32).max) else 0


def _objection(node: Node, growth: _Growth, opset: int, known: frozenset[str]) -> Rejection | None:
    """Return why the parts of a state cannot pile up."""
    initial = node.inputs[FIRST_STATE + growth.place]
    assert initial is not None
    shape, axis = initial.shape, growth.axis
    if shape is None or not isinstance(initial.type, TensorType):
        return Rejection("the first value of a state has no known rank", node)
    for part in (*growth.before, *growth.after):
        own = part.shape
        if own is None or not is_fixed(own, known) or len(own) != len(shape):
            return Rejection("a part may change its shape from round to round", node)
        if _beside(own, axis) != _beside(shape, axis):
            return Rejection("a part is not known to have the sizes of the state", node)
    sizes = [part.shape[axis] for part in (*growth.before, *growth.after) if part.shape is not None]
    if (growth.reads.sizes or growth.reads.windows) and not all(isinstance(size, int) for size in sizes):
        return Rejection("how long a state is does not follow from the number of the round", node)
    if growth.reads.sizes and opset < BROADCASTS_SINCE:
        return Rejection(f"before opset {BROADCASTS_SINCE} no number is multiplied with each of several", node)
    if opset < ALLOWS_EMPTY_SINCE and needs_sizes(shape, axis):
        return Rejection(f"before opset {ALLOWS_EMPTY_SINCE} no Reshape keeps sizes that may be 0", node)
    if growth.before and opset < BACKWARD_SINCE:
        return Rejection(f"before opset {BACKWARD_SINCE} no Slice turns rows around", node)
    return None


def _beside(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _collect(node: Node, found: list[_Growth]) -> None:
    """Rewrite a Loop."""
    edit, dropped = LoopEditState(node), set[int]()
    for growth in found:
        initial, result = node.inputs[FIRST_STATE + growth.place], edit.free_result(growth.place)
        assert initial is not None
        after = _part(edit, growth.after, growth.axis)
        _tell_sizes(edit, growth, initial)
        if growth.reads.windows:
            assert after is not None
            _carry_window(edit, growth, initial, after)
        else:
            dropped.add(growth.place)
        if result is not None and (result.use_count or result.is_graph_output):
            _join(edit, growth, initial, after, result)
    edit.drop_states(dropped)
    for growth in found:
        for link in reversed(growth.links):
            edit.body.remove(link)
    edit.sort()


def _part(edit: LoopEditState, parts: tuple[Value, ...], axis: int) -> Value | None:
    """Return what a round appends as one value."""
    if len(parts) < 2:
        return parts[0] if parts else None
    joined, first = edit.inner("Concat", parts, {"axis": axis}), parts[0].type
    assert isinstance(first, TensorType)
    assert first.shape is not None
    rows = sum(part.shape[axis] for part in parts if part.shape is not None)  # type: ignore[misc]  # no size is None
    joined.type = TensorType(first.dtype, (*first.shape[:axis], rows, *first.shape[axis + 1 :]))
    return joined


def _join(edit: LoopEditState, growth: _Growth, initial: Value, after: Value | None, result: Value) -> None:
    """Put what has piled up and the first value together as what the Loop returned."""
    axis, shape = growth.axis, initial.shape
    assert shape is not None
    before = _part(edit, growth.before, axis)
    is_empty = shape[axis] == 0
    parts = [(before, True), (after, False)]
    alone = result if is_empty and None in (before, after) else None
    stacks = [
        (edit.joined(edit.stack(part), axis, initial, alone, is_backward=is_backward), is_backward)
        for part, is_backward in parts
        if part is not None
    ]
    if alone is None:
        rows = [value for value, is_backward in stacks if is_backward]
        rows += [] if is_empty else [initial]
        rows += [value for value, is_backward in stacks if not is_backward]
        edit.behind("Concat", rows, {"axis": axis}, result)


def _carry_window(edit: LoopEditState, growth: _Growth, initial: Value, after: Value) -> None:
    """Carry on the last rows alone."""
    inside, shape = edit.state(growth.place), after.shape
    assert shape is not None
    rows = shape[growth.axis]
    assert isinstance(rows, int)
    bounds = [edit.number([each]) for each in (-growth.reads.rows, EVERY_ROW, growth.axis)]
    grown = after if rows >= growth.reads.rows else edit.inner("Concat", [inside, after], {"axis": growth.axis})
    left = after if rows == growth.reads.rows else edit.inner("Slice", [grown, *bounds])
    for reader, is_grown in growth.reads.windows:
        reader.set_input(0, left if is_grown else inside)
    edit.replace_state(growth.place, edit.front("Slice", [initial, *bounds]), left)


def _tell_sizes(edit: LoopEditState, growth: _Growth, initial: Value) -> None:
    """Compute the sizes that rounds ask for from the number of the round."""
    for reader, is_grown in growth.reads.sizes:
        bounds = {str(name): reader.int_attribute(name, 0) for name in ("start", "end") if name in reader.attributes}
        first = edit.front("Shape", [initial], dict(bounds))
        rank = len(initial.shape or ())
        parts = (*growth.before, *growth.after)
        rows = sum(part.shape[growth.axis] for part in parts if part.shape is not None)  # type: ignore[misc]  # ints
        each = np.where(np.arange(rank) == growth.axis, rows, 0)[bounds.get("start") : bounds.get("end")]
        number = edit.body.inputs[0]
        more = edit.inner("Mul", [number, edit.number(each)])
        ahead = [edit.inner("Add", [more, edit.number(each)])] if is_grown else [more]
        found = reader.detach_output(0)
        edit.body.remove(reader)
        edit.inner("Add", [first, *ahead], result=found)
