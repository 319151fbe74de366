"""Losses over class scores [N, C, ...]: what the wanted class of each place got, weighted, and its sum or mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.conditions import lies_within, looked_at, ranks
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.normalization import narrowed, widened
from ort_ep_coreml.lowering.rule import INTS, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, term
from ort_ep_coreml.mil import Operand


def _bounds(node: Node) -> tuple[int, int]:
    """Return between which numbers (inclusive) the wanted classes lie, the ignored one among them."""
    count = sizes_of(node.inputs[0])[1]  # type: ignore[arg-type]  # required
    assert isinstance(count, int), "_classes_are_known was asked"
    ignored = node.int_attribute("ignore_index", 0)
    return min(0, ignored), max(count - 1, ignored)


def _loss(to: EmissionState, node: Node, scores: Term) -> Operand:
    """Return the loss of logarithms of probabilities, in float32."""
    value = node.input(1)
    assert value is not None, "required"
    to.count_on(looked_at(value), *_bounds(node))
    classes, weight = term(to, value), node.input(2)
    is_counted = None
    if node.attribute("ignore_index") is not None:
        is_counted = classes.with_("not_equal", node.int_attribute("ignore_index", 0))
        classes = chosen(is_counted, classes, 0, classes)
    row = classes.do("expand_dims", axes=np.array([1], np.int32))
    picked = scores.do("gather_along_axis", indices=row.operand, axis=1, validate_indices=False)
    loss = -picked.do("squeeze", axes=np.array([1], np.int32))
    share = _ones(classes, loss) if weight is None else _shares(to, node, classes)
    if is_counted is not None:
        share = chosen(is_counted, share, 0, share)
        loss = chosen(is_counted, loss, 0, loss)
    loss = loss * share
    reduction = node.string_attribute("reduction", "mean")
    if reduction == "none":
        return narrowed(loss, first(to, node)).operand
    axes = range(rank_of(value))
    total = loss.reduced("reduce_sum", *axes, keeps=False)
    total = total / share.reduced("reduce_sum", *axes, keeps=False) if reduction == "mean" else total
    return narrowed(total, first(to, node)).operand


def _ones(classes: Term, like: Term) -> Term:
    """Return ones for every place, whatever numbers stand there."""
    return classes.with_("equal", classes).cast(like.dtype, "fp32")


def _shares(to: EmissionState, node: Node, classes: Term) -> Term:
    weight = widened(term(to, node.input(2)))
    return weight.do("gather", indices=classes.operand, axis=0, validate_indices=False)


def _likelihood(to: EmissionState, node: Node) -> Operand:
    return _loss(to, node, widened(first(to, node)))


def _cross_entropy(to: EmissionState, node: Node) -> list[Operand]:
    scores = widened(first(to, node))
    logarithms = scores - scores.reduced("reduce_log_sum_exp", 1)
    return [_loss(to, node, logarithms), narrowed(logarithms, first(to, node)).operand]


def _classes_are_known(context: LoweringContext, node: Node) -> str | None:
    count, value = sizes_of(node.inputs[0])[1], node.input(1)  # type: ignore[arg-type]  # required
    assert value is not None, "required"
    if not isinstance(count, int):
        return "how many classes there are is not known beforehand"
    ignored = node.int_attribute("ignore_index", 0)
    if not -1 <= ignored <= count:  # between it and the classes lie numbers that are neither
        return f"{node.op_type} with ignore_index={ignored}, which lies apart from the classes 0 to {count - 1}"
    if lies_within(context, value, *_bounds(node)):
        return None
    return f"nothing proves that the classes {value.name!r} lie within 0 to {count - 1}; Core ML does not look"


LOSSES: Mapping[str, Rule] = {
    "NegativeLogLikelihoodLoss": Rule(
        _likelihood, ports={1: INTS}, conditions=(ranks(2, 5), _classes_are_known), required=2
    ),
    "SoftmaxCrossEntropyLoss": Rule(
        _cross_entropy, ports={1: INTS}, conditions=(ranks(2, 5), _classes_are_known), required=2, outputs=2
    ),
}
"""Rules by operator."""
