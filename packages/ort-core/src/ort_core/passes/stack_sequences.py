"""StackedSequences: a sequence to which each round of a Loop adds a tensor piles up as one tensor instead.

    s = Loop(n, c, SequenceEmpty()) { p = ...;  t = SequenceInsert(s, p) };   y = ConcatFromSequence<new_axis = 1>(s)
                                                                    ->   y = Loop(n, c) { p = ... }

Recurrent layers that are written out as programs collect their steps in a list, and stack or concatenate it behind the
loop. The list is no value of its own then. Its length is the number of rounds, and one of its elements is a Gather.
Where no round runs, the result is empty; ConcatFromSequence would refuse a sequence without elements.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import Shape
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.loop_edits import (
    ALLOWS_EMPTY_SINCE,
    FIRST_STATE,
    STATELESS_SINCE,
    LoopEditState,
    Stacked,
    is_fixed,
    moved_first,
    needs_sizes,
    outer_symbols,
)

_NAME = "sequence"
_READERS = ("ConcatFromSequence", "SequenceLength", "SequenceAt")


@frozen
class _Collected:
    """A sequence that is a state: which one, the node that adds to it, what it adds, and who reads it in the end."""

    place: int
    insert: Node
    part: Value
    readers: tuple[Node, ...]


class StackedSequences(Pass):
    """Collect tensors as tensors."""

    name = "StackedSequences"
    after = ("ConstantFolding",)
    before = ("GrowingStates",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every state of every Loop that adds to a sequence."""
        if not {"Loop", "SequenceInsert", "SequenceEmpty"} <= context.op_types():
            return
        for graph in context.graphs_with(("Loop",)):
            for node in [each for each in context.nodes_of(graph, ("Loop",)) if each.domain == ""]:
                body = node.attributes["body"].graphs()[0]
                if len(body.inputs) != len(node.inputs) or len(body.outputs) != 1 + len(node.outputs):
                    continue
                found = list[_Collected]()
                for place in range(len(node.inputs) - FIRST_STATE):
                    collected = _collected(node, body, place, context.opset(node))
                    if isinstance(collected, Rejection):
                        record.refused(_NAME, collected, node)
                    else:
                        found.append(collected)
                if context.opset(node) < STATELESS_SINCE and len(found) == len(node.inputs) - FIRST_STATE:
                    continue  # a Loop must carry something; no such Loop carries sequences
                if found:
                    _stack(node, found)
                    record.changed(_NAME, len(found))


def _collected(node: Node, body: Graph, place: int, opset: int) -> _Collected | Rejection:
    """Return the sequence that a state is, or why it is none that can pile up."""
    initial, inside, left = node.inputs[FIRST_STATE + place], body.inputs[FIRST_STATE + place], body.outputs[1 + place]
    insert, result = left.producer, node.outputs[place]
    if initial is None or initial.producer is None or not _is(initial.producer, "SequenceEmpty"):
        return Rejection("a state is no sequence that is empty at first", node)
    if insert is None or insert.graph is not body or not _is(insert, "SequenceInsert") or insert.input(2) is not None:
        return Rejection("a round does not add one tensor behind the others", node)
    part = insert.input(1)
    is_alone = insert.input(0) is inside and inside.use_count == 1 and inside not in body.outputs
    if part is None or not is_alone or left.use_count or body.outputs.count(left) > 1:
        return Rejection("a round reads the sequence", node)
    if result is None or result.is_graph_output or any(reader.graph is not node.graph for reader in result.readers()):
        return Rejection("the sequence itself is a result, or is read within a body", node)
    readers = result.consumers()
    if not readers or not all(_is(reader, *_READERS) and reader.input(0) is result for reader in readers):
        return Rejection("the sequence is read other than as a whole, by its length or by an element", node)
    shape = part.shape
    if shape is None or not is_fixed(shape, outer_symbols(node)):
        return Rejection("a tensor may change its shape from round to round", node)
    if not all(_fits(reader, shape, opset) for reader in readers):
        return Rejection("a place or an axis is not one, or no Reshape of this opset keeps sizes that may be 0", node)
    return _Collected(place, insert, part, readers)


def _stack(node: Node, found: list[_Collected]) -> None:
    """Rewrite a Loop."""
    edit = LoopEditState(node)
    for collected in found:
        edit.free_result(collected.place)
        stacked = edit.stack(collected.part)
        for reader in collected.readers:
            _read(edit, reader, stacked)
    edit.drop_states({collected.place for collected in found})
    for collected in found:
        edit.body.remove(collected.insert)


def _read(edit: LoopEditState, reader: Node, stacked: Stacked) -> None:
    """Let what read a sequence read a tensor."""
    graph, rank = edit.graph, len(stacked.shape)
    result, axis = reader.detach_output(0), reader.int_attribute("axis", 0)
    if reader.op_type == "SequenceAt":
        inputs = [stacked.value, reader.input(1)]
        graph.insert_before(reader, Node("Gather", inputs, [result], {"axis": 0}, name=reader.name, opset=reader.opset))
    elif reader.op_type == "SequenceLength":
        first = graph.new_constant(np.array(0, np.int64), "first")
        edit.behind("Gather", [edit.behind("Shape", [stacked.value]), first], {"axis": 0}, result)
    elif reader.int_attribute("new_axis", 0):
        edit.behind("Transpose", [stacked.value], {"perm": moved_first(axis % (rank + 1), rank)}, result)
    else:
        edit.joined(stacked, axis % rank, result=result)
    graph.remove(reader)


def _fits(reader: Node, shape: Shape, opset: int) -> bool:
    """Return whether what a reader does can be done with a tensor."""
    if reader.op_type == "SequenceAt":
        place = reader.input(1)
        return place is not None and place.rank == 0  # Gather would give a place of rank 1 an axis
    if reader.op_type != "ConcatFromSequence":
        return True
    axis, is_new = reader.int_attribute("axis", 0), bool(reader.int_attribute("new_axis", 0))
    rank = len(shape) + is_new
    return -rank <= axis < rank and (is_new or opset >= ALLOWS_EMPTY_SINCE or not needs_sizes(shape, axis % rank))


def _is(node: Node, *op_types: str) -> bool:
    return node.domain == "" and node.op_type in op_types
