"""What the classifiers of ai.onnx.ml share: integer labels, and the step from scores to labels and probabilities."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.machine_learning.class_scores import ClassScores, class_scores_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, pointer
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, Node

I64 = DataType.INT64


@frozen
class Labels:
    """Where labels go: ``table`` has one per class, ``column`` is the score that a threshold is compared with."""

    table: np.ndarray
    view: View
    column: int = 0


def labels_of(node: Node, name: str) -> np.ndarray:
    """Return a classifier's integer labels.

    Raises:
        NotLowered: its labels are strings, or it has none.
    """
    strings, integers = node.attribute("classlabels_strings"), node.ints_attribute(name)
    if strings or not integers:
        raise NotLowered("only integer labels are generated")
    return np.array(integers, np.int64)


def paired(transform: str, label: ClassScores, mirrors: bool) -> ClassScores:
    """Return how a single score becomes two columns: -s or 1 - s, and s; of the transforms only LOGISTIC changes them.

    LOGISTIC mirrors always: its columns are then complements.
    """
    is_logistic = transform == "LOGISTIC"
    pair = "mirror" if mirrors or is_logistic else "complement"
    return ClassScores("LOGISTIC" if is_logistic else "NONE", label.label, label.threshold, pair)


def emit_class_scores(
    lowering: Lowering, node: Node, spec: ClassScores, scores: View, results: View | None, labels: Labels | None
) -> None:
    """Append the step that turns scores [rows, columns] into labels and results.

    Args:
        lowering: the group.
        node: the classifier.
        spec: what to do; without ``results`` the transform must be empty, without ``labels`` there is no label.
        scores: dense float32.
        results: dense float32, or ``None``.
        labels: where labels go, or ``None``.
    """
    if labels is None:
        spec = ClassScores(spec.transform, "", 0.0, spec.pair)
    if not spec.label and not spec.transform:
        return
    name, function = class_scores_kernel(spec, lowering.target)
    table = lowering.constant_view(np.zeros(1, np.int64) if labels is None else labels.table, I64)
    place = pointer(labels.view) if labels is not None else pointer(table)
    arguments: list[Argument] = [
        pointer(scores), pointer(results) if results is not None else pointer(scores), place, pointer(table),
        scores.shape[0], scores.shape[1], labels.column if labels is not None else 0,
    ]  # fmt: skip
    writes = [view.buffer for view in (results, labels.view if labels is not None else None) if view is not None]
    work = count_of(scores.shape) * (8 if spec.transform else 2)
    if len(scores.shape) != 2:
        raise NotLowered("scores that are not a matrix are not generated")
    lowering.emit(KernelText(name, function), arguments, [scores.buffer], writes, work, (node,))
