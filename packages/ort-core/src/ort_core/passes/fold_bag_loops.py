"""BagLoops: a Loop that sums the embeddings of one bag after the other becomes one sum over an axis.

    offsets = Concat(Range(0, Size(ids), bag), Size(ids));  ends = Slice(offsets, 1, ...)
    y = Loop(rows) { Reduce(Gather(w, Slice(flat, offsets[i], ends[i])), 0) };  flat = Reshape(ids, -1)
                                                            ->  y = Reduce(Gather(w, ids), 1)

torch's exporter writes ``EmbeddingBag`` over a table of ids so, with ReduceSum, ReduceMean or ReduceMax. Bags of other
lengths, whose offsets are data, stay a Loop.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import KnownDim, SymbolicDim
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

_NAME = "bags"
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")


@frozen
class _Bags:
    """What a Loop computes: a reduction of rows of a table, chosen by a matrix of indices, one row of it a bag."""

    reduction: Node
    table: Value
    indices: Value


class BagLoops(Pass):
    """Compute bags of embeddings of equal length without a Loop."""

    name = "BagLoops"
    after = ("ConstantFolding",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every Loop that carries nothing and collects one result."""
        for graph in context.graphs_with(("Loop",)):
            for node in [each for each in context.nodes_of(graph, ("Loop",)) if each.domain == ""]:
                found = _bags_of(context, node)
                if isinstance(found, Rejection):
                    record.refused(_NAME, found, node)
                    continue
                objection = _patch(context, node, found).apply()
                if objection is None:
                    record.changed(_NAME)
                else:
                    record.refused(_NAME, objection, node)


def _patch(context: PassContext, node: Node, bags: _Bags) -> GraphPatch:
    patch = GraphPatch(context.model, node)
    rows = patch.node("Gather", [bags.table, bags.indices], {"axis": 0}).output
    attributes: dict[str, object] = dict(bags.reduction.attributes)
    inputs: list[Value | None] = [rows]
    if bags.reduction.input(1) is None:
        attributes["axes"] = [1]
    else:
        inputs.append(patch.constant(np.array([1], np.int64), "axes"))
    new = patch.node(bags.reduction.op_type, inputs, attributes, outputs=(node.output.type,), name=node.name)
    patch.replace(node.output, new.output)
    patch.remove(node)
    return patch


def _bags_of(context: PassContext, node: Node) -> _Bags | Rejection:
    body = node.attributes["body"].graphs()[0]
    if len(node.inputs) != 2 or len(body.outputs) != 2 or not (_is_true(node.input(1)) and _is_true(body.outputs[0])):
        return Rejection("it carries values, collects more than one result, or may end early", node)
    reduction = body.outputs[1].producer
    if reduction is None or reduction.op_type not in _REDUCTIONS or not _reduces_rows(reduction):
        return Rejection("its result is not a sum, mean or maximum of rows", node)
    gathered = _made_by(reduction.input(0), body, "Gather")
    chosen = None if gathered is None else _made_by(gathered.input(1), body, "Slice")
    if gathered is None or chosen is None or gathered.int_attribute("axis", 0) or _belongs_to(gathered.input(0), body):
        return Rejection("its rows are none of a table, chosen by a slice of indices", node)
    indices = _flattened(chosen.input(0))
    if indices is None or _belongs_to(chosen.input(0), body) or not _is_along_first(chosen):
        return Rejection("its slices are none of a flattened matrix of indices", node)
    if not _are_equal_bags(context, node, chosen, indices):
        return Rejection("its bags are not known to be the rows of a matrix", node)
    table = gathered.input(0)
    assert table is not None
    return _Bags(reduction, table, indices)


def _are_equal_bags(context: PassContext, node: Node, chosen: Node, indices: Value) -> bool:
    """Return whether slice number i is row i of the indices, for as many rounds as there are rows."""
    body = node.attributes["body"].graphs()[0]
    starts, ends = (_numbered(chosen.input(place), body) for place in (1, 2))
    shape = indices.shape
    if starts is None or ends is None or shape is None or None in shape:
        return False
    rows, length = shape
    assert rows is not None
    assert length is not None
    behind = _producer(ends, "Slice")
    joined = _producer(starts, "Concat")
    if behind is None or joined is None or behind.input(0) is not starts or len(joined.inputs) != 2:
        return False
    steps = _producer(joined.input(0), "Range")
    if steps is None or not (_is_along_first(behind) and _starts_at_one(behind)):
        return False
    found = [_number(context, value) for value in (*steps.inputs, joined.input(1), node.input(0))]
    return found == [0, rows * length, length, rows * length, rows]


def _number(context: PassContext, value: Value | None) -> KnownDim | None:
    """Return the one element of an integer tensor, as far as it follows from sizes."""
    if value is None:
        return None
    constant = constant_of(value)
    known = constant.array() if constant is not None else (context.values or {}).get(value)
    if known is None or known.size != 1:
        return None
    (only,) = known.reshape(-1).tolist()
    return only if isinstance(only, (int, SymbolicDim)) else None


def _numbered(value: Value | None, body: Graph) -> Value | None:
    """Return v for ``Unsqueeze(Gather(v, i))``, where i counts the rounds."""
    outer = _made_by(value, body, "Unsqueeze")
    inner = None if outer is None else _made_by(outer.input(0), body, "Gather")
    if inner is None or inner.int_attribute("axis", 0) or inner.input(1) is not body.inputs[0]:
        return None
    return None if _belongs_to(inner.input(0), body) else inner.input(0)


def _flattened(value: Value | None) -> Value | None:
    """Return a matrix from ``Reshape(matrix, [-1])``."""
    node = _producer(value, "Reshape")
    shape = None if node is None else constant_of(node.input(1))
    if node is None or shape is None or shape.array().tolist() != [-1]:
        return None
    matrix = node.input(0)
    return matrix if matrix is not None and matrix.rank == 2 else None


def _is_along_first(node: Node) -> bool:
    """Return whether a Slice goes along axis 0 with steps of 1."""
    axes, steps = (node.input(place) for place in (3, 4))
    return _is_constant(axes, 0) and (steps is None or _is_constant(steps, 1))


def _starts_at_one(node: Node) -> bool:
    """Return whether a Slice leaves out the first element and nothing else."""
    end = constant_of(node.input(2))
    if end is None or end.size != 1 or not _is_constant(node.input(1), 1):
        return False
    return bool(end.array().reshape(-1)[0] >= np.iinfo(np.int32).max)


def _reduces_rows(node: Node) -> bool:
    axes = node.input(1)
    given = node.ints_attribute("axes") if axes is None else None
    return node.int_attribute("keepdims", 1) == 0 and (given == (0,) if axes is None else _is_constant(axes, 0))


def _is_constant(value: Value | None, number: int) -> bool:
    constant = constant_of(value)
    return constant is not None and constant.size == 1 and bool(constant.array().reshape(-1)[0] == number)


def _is_true(value: Value | None) -> bool:
    """Return whether a condition is absent or always true."""
    return value is None or _is_constant(value, 1)


def _made_by(value: Value | None, body: Graph, op_type: str) -> Node | None:
    node = _producer(value, op_type)
    return node if node is not None and node.graph is body else None


def _producer(value: Value | None, op_type: str) -> Node | None:
    node = None if value is None else value.producer
    return node if node is not None and node.domain == "" and node.op_type == op_type else None


def _belongs_to(value: Value | None, body: Graph) -> bool:
    """Return whether a value is missing, or made or given in a body."""
    if value is None or value in body.inputs:
        return True
    return value.producer is not None and value.producer.graph is body
