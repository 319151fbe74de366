"""Losses of labels: what belongs to a label is chosen by comparing it with every class; nothing is read by index."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.activations import times
from ort_ep_directml.lowering.elementwise import BYTE, binary, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand, broadcast, expanded
from ort_ep_directml.lowering.reductions import log_softmax, reduced
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import ReduceFunction

_WIDE = ElementType.FLOAT32


def _chosen(to: EmissionState, node: Node, labels: Operand, classes: int) -> Operand:
    """Return 1 where a class, along dimension 1, is that of the label, which is not one to be ignored."""
    wide = to.reshape(labels, (labels.sizes[0], 1, *labels.sizes[1:]))
    numbers = to.constant(np.arange(classes).astype(labels.dtype.numpy).reshape(1, -1, *(1,) * (labels.rank - 1)))
    found = binary(to, "ELEMENT_WISE_LOGICAL_EQUALS", numbers, wide, BYTE)
    ignored = node.attribute("ignore_index")
    if not isinstance(ignored, int) or not 0 <= ignored < classes:
        return found
    others = np.where(np.arange(classes) == ignored, 0, 1).astype(np.uint8)
    return binary(to, "ELEMENT_WISE_LOGICAL_AND", found, to.constant(others.reshape(numbers.sizes)))


def _picked(to: EmissionState, chosen: Operand, x: Operand) -> Operand:
    """Return the numbers of the chosen classes, without dimension 1; zero where none is chosen."""
    sizes = broadcast(chosen.sizes, x.sizes)
    zero = expanded(to.scalar(x.dtype, 0), sizes)
    parts = {"Condition": expanded(chosen, sizes), "A": expanded(x, sizes), "B": zero}
    kept = to.emit("ELEMENT_WISE_IF", (x.dtype, sizes), **parts)
    return to.reshape(reduced(to, kept, ReduceFunction.SUM, (1,)), (sizes[0], *sizes[2:]))


def _loss(to: EmissionState, node: Node, scores: Operand) -> Operand:
    """Append the loss of log-probabilities in float32, labels and weights being the node's next inputs."""
    labels = to.operand(node.input(1))
    chosen = _chosen(to, node, labels, scores.sizes[1])
    loss = unary(to, "ELEMENT_WISE_NEGATE", _picked(to, chosen, scores))
    weights: Operand | None = None
    if node.input(2) is not None:
        given = to.cast(to.operand(node.input(2)), scores.dtype)
        weights = _picked(to, chosen, to.reshape(given, (1, given.sizes[0], *(1,) * (scores.rank - 2))))
        loss = times(to, loss, weights)
    elif node.attribute("ignore_index") is not None:
        one = expanded(to.scalar(scores.dtype, 1), chosen.sizes)
        weights = _picked(to, chosen, one)
    return _folded(to, node, loss, weights)


def _folded(to: EmissionState, node: Node, loss: Operand, weights: Operand | None) -> Operand:
    """Append what the reduction makes of the losses; their mean is by the sum of the weights."""
    way = node.string_attribute("reduction", "mean")
    if way == "none":
        return loss
    axes = tuple(range(loss.rank))
    if way == "mean" and weights is None:
        return to.reshape(reduced(to, loss, ReduceFunction.AVERAGE, axes), ())
    total = reduced(to, loss, ReduceFunction.SUM, axes)
    if way == "mean" and weights is not None:
        total = binary(to, "ELEMENT_WISE_DIVIDE", total, reduced(to, weights, ReduceFunction.SUM, axes))
    elif way != "sum":
        raise Refused(f"{way!r} is not a reduction of a loss")
    return to.reshape(total, ())


def _likelihood(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    return to.cast(_loss(to, node, to.cast(x, _WIDE)), x.dtype)


def _cross_entropy(to: EmissionState, node: Node) -> list[Operand]:
    x = to.operand(node.input(0))
    scores = log_softmax(to, to.cast(x, _WIDE), (1,))
    return [to.cast(_loss(to, node, scores), x.dtype), to.cast(scores, x.dtype)]


LOSSES: Mapping[str, Rule] = {
    "NegativeLogLikelihoodLoss": Rule(_likelihood, required=2),
    "SoftmaxCrossEntropyLoss": Rule(_cross_entropy, required=2, outputs=2),
}
"""Rules by operator."""
