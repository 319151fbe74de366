"""CDist of com.microsoft: distances between the rows of two matrices, as sums of squared differences.

    out[i, j] = sum over k of (a[i, k] - b[j, k])**2

Nothing cancels in that sum, as it does in ``a**2 + b**2 - 2 a b``. The second matrix is turned first, so that vectors
of its rows lie side by side.
"""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rows.reducing import After, combined, operand_of, reduce_operand, store_operand
from ort_core.cpu.lowering.rules.rows.rows import FLOATS
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import Node
from ort_core.plugin.loops import Scalar, unary


def pairwise_distances(lowering: Lowering, node: Node) -> None:
    """Store the distances, Euclidean ones or their squares."""
    a, b = (lowering.contiguous(value) for value in node.inputs[:2])
    dtype, shape = tensor_type(node.output)
    metric = node.string_attribute("metric", "sqeuclidean")
    if dtype not in FLOATS or len(a.shape) != 2 or len(b.shape) != 2 or len(shape) != 2:
        raise NotLowered("only distances between the rows of two matrices are generated")
    if metric not in ("euclidean", "sqeuclidean"):
        raise NotLowered(f"the metric {metric} is not generated")
    (rows, width), (columns, other) = a.shape, b.shape
    lowering.require_equal(width, other)
    turned = store_operand(lowering, operand_of(b.transposed((1, 0))), (node,))
    left = View(a.buffer, (width, rows, 1), (a.strides[1], a.strides[0], 0), a.offset)
    right = View(turned.buffer, (width, 1, columns), (turned.strides[0], 0, turned.strides[1]), turned.offset)
    squares = combined((width, rows, columns), _squared_difference, left, right)
    after: After | None = _root if metric == "euclidean" else None
    target = lowering.result_view(node.output)
    reduce_operand(lowering, squares, [0], "sum", after, target, (node,))
    lowering.set(node.output, target)


def _squared_difference(x: Scalar, y: Scalar) -> Scalar:
    difference = x - y
    return difference * difference


def _root(total: Scalar, count: Scalar) -> Scalar:
    return unary("sqrt", total)
