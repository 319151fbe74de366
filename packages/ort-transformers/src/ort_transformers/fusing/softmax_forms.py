"""Softmaxes of an attention that are written by hand, as the operator that fusions know.

    e / ReduceSum(e)  with  e = Exp(Sub(s, ReduceMax(s))) or Exp(s)     ->  Softmax(s)
    MatMul(e, v) / ReduceSum(e)                                        ->  MatMul(Softmax(s), v)
    Exp(LogSoftmax(s))                                                 ->  Softmax(s)
    e / (1 + ReduceSum(e))  with  e = Exp(s)                           ->  Slice(Softmax(Concat(s, 0)))
    e / (Exp(-m) + ReduceSum(e))  with  e = Exp(Sub(s, m))             ->  Slice(Softmax(Concat(s, 0)))

What is taken from all scores of a row changes no share, whatever it is. The last two are quiet attention, whose shares
may all be small: one more score of zero takes part and weighs nothing, as a sink does. Where a row overflowed, the
operator has numbers in place of NaN.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, is_scalar, one_of, op, var
from ort_transformers.fusing.norm_forms import axes_of

_PER_AXIS_OPSET = 13  # before, LogSoftmax counted all axes from the given one on, the first two apart by default
_RANKS = (3, 4, 5)
_TO_VALUES = frozenset({"Cast", "Reshape", "Transpose", "Dropout", "Identity", "Where", "Mul"})
_STEPS = 4  # between shares and the product with values, of the repositories that were looked at, and some more


class SoftmaxByHand(RewriteRule[Value]):
    """Make a Softmax of exponentials over their sum."""

    name = "SoftmaxByHand"

    def build_pattern(self) -> Pattern:
        """Return exponentials, or their product with values, over their sum."""
        exponentials = op("Exp", var("shifted"), name="exp")
        total = op("ReduceSum", exponentials, name="sum", more_inputs=True)
        weighed = op("MatMul", exponentials, var("values"), name="product")
        return one_of(op("Div", weighed, total), op("Div", exponentials, total))

    def check(self, match: Match) -> Value | Rejection:
        """The sum must be over the last axis, and keep it; nobody else may read the exponentials."""
        refusal = _refuse_sum(match)
        if refusal is not None:
            return refusal
        if not match.has_node("product") and not weighs_values(match.output):
            return Rejection("its result weighs no values", match.root)
        return _before_shift(match["shifted"])

    def rewrite(self, match: Match, bindings: Value) -> GraphPatch:
        """Put the operator there."""
        patch = GraphPatch(match.model, match.root)
        result = patch.op("Softmax", [bindings], {"axis": -1}, type=match["shifted"].type)
        if match.has_node("product"):
            result = patch.op("MatMul", [result, match["values"]], type=match.output.type)
        patch.replace(match.output, result)
        patch.remove(*match.nodes)
        return patch


class SoftmaxOfLogarithms(RewriteRule[None]):
    """Make a Softmax of the exponentials of its logarithms."""

    name = "SoftmaxOfLogarithms"

    def build_pattern(self) -> Pattern:
        """Return the exponentials."""
        return op("Exp", op("LogSoftmax", var("scores"), name="log"))

    def check(self, match: Match) -> Rejection | None:
        """They must be of the last axis, and weigh values."""
        rank, log = match["scores"].rank, match.node("log")
        default = -1 if match.opset(log) >= _PER_AXIS_OPSET else 1
        if rank not in _RANKS or log.int_attribute("axis", default) not in (-1, rank - 1):
            return Rejection("the logarithms are not those of scores by their last axis", match.root)
        return None if weighs_values(match.output) else Rejection("its result weighs no values", match.root)

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put the operator there."""
        patch = GraphPatch(match.model, match.root)
        patch.replace(match.output, patch.op("Softmax", [match["scores"]], {"axis": -1}, type=match.output.type))
        patch.remove(*match.nodes)
        return patch


class QuietSoftmax(RewriteRule[Value]):
    """Make a Softmax with one more score of zero of exponentials over one more than their sum."""

    name = "QuietSoftmax"

    def build_pattern(self) -> Pattern:
        """Return exponentials over their sum and that of zero."""
        exponentials = op("Exp", var("shifted"), name="exp")
        total = op("ReduceSum", exponentials, name="sum", more_inputs=True)
        more = one_of(is_scalar(1.0, relative=0.0), op("Exp", op("Neg", var("shift"), name="turned")))
        return op("Div", exponentials, one_of(op("Add", total, more), op("Add", more, total)))

    def check(self, match: Match) -> Value | Rejection:
        """The sum must be over the last axis, and what is added the exponential of the same shift."""
        refusal = _refuse_sum(match)
        if refusal is not None:
            return refusal
        shifted = match["shifted"]
        if shifted.rank != 4 or not isinstance((shifted.shape or ())[1], int):
            return Rejection("the scores do not have four axes and a known number of heads", match.root)
        if not weighs_values(match.output):
            return Rejection("its result weighs no values", match.root)
        if not match.has_node("turned"):
            return shifted
        maker = shifted.producer
        is_same = maker is not None and maker.op_type == "Sub" and maker.inputs[1] is match["shift"]
        scores = maker.inputs[0] if is_same and maker is not None else None
        if scores is None or not _is_one_of_each_row(match["shift"], scores):
            return Rejection("the scores are not shifted by what is added to their sum", match.root)
        return scores

    def rewrite(self, match: Match, bindings: Value) -> GraphPatch:
        """Put the operator there, beside a column of zeros."""
        patch = GraphPatch(match.model, match.root)
        assert isinstance(bindings.type, TensorType)
        assert bindings.shape is not None
        dtype = bindings.type.dtype
        zero = patch.constant(np.zeros((1, int(str(bindings.shape[-3])), 1, 1), dtype.numpy), "zero")
        sizes = patch.op("Concat", [_rows(patch, bindings), patch.constant(np.ones(1, np.int64), "one")], {"axis": 0})
        column = patch.op("Expand", [zero, sizes], type=TensorType(dtype, (*bindings.shape[:-1], 1)))
        last = bindings.shape[-1]
        wide = TensorType(dtype, (*bindings.shape[:-1], None if last is None else last + 1))
        joined = patch.op("Concat", [bindings, column], {"axis": -1}, type=wide)
        shares = patch.op("Softmax", [joined], {"axis": -1}, type=wide)
        bounds = [patch.constant(np.array([each], np.int64), "bound") for each in (0, -1, -1)]
        patch.replace(match.output, patch.op("Slice", [shares, *bounds], type=match.output.type))
        patch.remove(*match.nodes)
        return patch


def _rows(patch: GraphPatch, scores: Value) -> Value:
    """Return the sizes of scores but the last."""
    bounds = [patch.constant(np.array([each], np.int64), "bound") for each in (0, -1)]
    return patch.op("Slice", [patch.op("Shape", [scores]), *bounds])


def _refuse_sum(match: Match) -> Rejection | None:
    """Return why a sum is not that of each row of exponentials, which nothing else reads."""
    total, exponentials = match.node("sum"), match.node("exp").output
    rank = exponentials.rank
    if rank not in _RANKS or len(exponentials.consumers()) != 2 or exponentials.is_graph_output:
        return Rejection("the exponentials are not those of scores, or others read them", match.root)
    if axes_of(total) not in ((-1,), (rank - 1,)) or total.int_attribute("keepdims", 1) != 1:
        return Rejection("the sum is not over the last axis, or does not keep it", match.root)
    return None


def _before_shift(shifted: Value) -> Value:
    """Return scores of which the same number was taken from each row, or what is there where that is not known."""
    node = shifted.producer
    if node is None or node.op_type != "Sub" or node.inputs[0] is None or node.inputs[1] is None:
        return shifted
    return node.inputs[0] if _is_shift(node) else shifted


def _is_shift(node: Node) -> bool:
    scores, shift = node.inputs
    maker = None if shift is None else shift.producer
    is_largest = maker is not None and maker.op_type == "ReduceMax" and maker.inputs[0] is scores
    return is_largest and scores is not None and shift is not None and _is_one_of_each_row(shift, scores)


def _is_one_of_each_row(shift: Value, scores: Value) -> bool:
    """Return whether a value has the sizes of scores, and one element in the last axis."""
    left, right = shift.shape, scores.shape
    if left is None or right is None or len(left) != len(right) or len(left) < 2:
        return False
    return left[-1] == 1 and all(a is not None and a == b for a, b in zip(left[:-1], right[:-1], strict=True))


def weighs_values(shares: Value, steps: int = _STEPS) -> bool:
    """Return whether a product reads shares, or what moves them."""
    for node in shares.consumers():
        if node.domain != "":
            continue
        if node.op_type in ("MatMul", "Einsum"):
            return True
        if steps and node.op_type in _TO_VALUES and weighs_values(node.output, steps - 1):
            return True
    return False


SOFTMAX_FORMS = RulePass("SoftmaxForms", [SoftmaxByHand(), SoftmaxOfLogarithms(), QuietSoftmax()], Level.EXTENDED)
