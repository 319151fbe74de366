"""LinearRegressor and LinearClassifier: a product with constant coefficients, then scores and labels.

Scores of float64 features are summed in float64; all scores are float32.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.machine_learning.class_scores import TRANSFORMS, ClassScores
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.rules.machine_learning.classes import Labels, emit_class_scores, labels_of, paired
from ort_core.cpu.lowering.rules.products import constant_product
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, cast, element

F32, F64 = DataType.FLOAT, DataType.DOUBLE


def linear_regressor(lowering: Lowering, node: Node) -> None:
    """LinearRegressor: ``X @ coefficients.T + intercepts`` through the post transform."""
    features, width = feature_matrix(lowering, node, keeps_float64=True)
    targets = node.int_attribute("targets", 1)
    transform = _transform(node)
    if targets < 1 or len(node.floats_attribute("coefficients")) < targets * width:
        raise NotLowered(f"the coefficients do not give {targets} targets")
    pending = _scores(lowering, node, features, width, targets)
    if transform == "NONE" or targets == 1:
        lowering.set(node.output, pending)
        return
    result = lowering.result_view(node.output)
    emit_class_scores(lowering, node, ClassScores(transform), stored_product(lowering, pending), result, None)
    lowering.set(node.output, result)


def linear_classifier(lowering: Lowering, node: Node) -> None:
    """LinearClassifier: the label of the largest score; a single score decides by its sign."""
    features, width = feature_matrix(lowering, node, keeps_float64=True)
    intercepts = node.floats_attribute("intercepts")
    classes = len(intercepts) or len(node.floats_attribute("coefficients")) // max(width, 1)
    transform = _transform(node)
    if not classes or classes * width > len(node.floats_attribute("coefficients")):
        raise NotLowered(f"the coefficients do not give {classes} classes")
    named = node.ints_attribute("classlabels_ints") or node.attribute("classlabels_strings")
    labels = labels_of(node, "classlabels_ints") if named else np.arange(max(classes, 2))
    if len(labels) < classes or (classes == 1 and len(labels) != 2):
        raise NotLowered(f"it has {len(labels)} labels for {classes} classes")
    scores = stored_product(lowering, _scores(lowering, node, features, width, classes))
    if classes > 1:
        spec = ClassScores(transform, "largest")
    elif named:
        spec = paired(transform, ClassScores("", "above"), mirrors=False)
    else:
        spec = ClassScores("NONE", "above")
    results = lowering.result_view(node.outputs[1]) if node.outputs[1:] and node.outputs[1] is not None else None
    if results is None:
        spec = ClassScores("", spec.label)
    label = Labels(labels, lowering.result_view(node.output)) if node.outputs[0] is not None else None
    emit_class_scores(lowering, node, spec, scores, results, label)
    if label is not None:
        lowering.set(node.output, label.view)
    if results is not None:
        lowering.set(node.outputs[1], results)


def feature_matrix(lowering: Lowering, node: Node, *, keeps_float64: bool = False) -> tuple[View, int]:
    """Return the rows as a float32 matrix, or as one of float64 if they are that, and their width.

    A vector is one row.
    """
    view = lowering.contiguous(node.input(0))
    if view.dtype is F64 and not keeps_float64:
        raise NotLowered("features of float64 are not generated")
    if view.dtype not in (F32, F64):
        view = lowering.computed(cast(element(0, view.dtype), F32), (view,))
    if len(view.shape) == 1:
        view = view.reshaped((1, *view.shape))
    width = view.shape[-1]
    if len(view.shape) != 2 or not isinstance(width, int):
        raise NotLowered("features that are not a matrix of known width are not generated")
    return view, width


def _scores(
    lowering: Lowering, node: Node, features: View, width: int, count: int
) -> PendingAnchor | PendingElementwise:
    dtype = features.dtype
    weights = np.array(node.floats_attribute("coefficients")[: count * width], dtype.numpy).reshape(count, width)
    product = constant_product(lowering, features, weights.T, node.op_type)
    intercepts = node.floats_attribute("intercepts")
    value: Scalar = element(0, dtype)
    inputs: tuple[View, ...] = ()
    if len(intercepts) == count:  # another count is none, as in onnxruntime
        inputs = (lowering.constant_view(np.array(intercepts, dtype.numpy), dtype),)
        value = value + element(1, dtype)
    scores = PendingAnchor(product, value, inputs, (features.shape[0], count), (node,))
    if dtype is F32:
        return scores
    sums = stored_product(lowering, scores)
    return PendingElementwise(cast(element(0, dtype), F32), (sums,), sums.shape, (node,))


def stored_product(lowering: Lowering, pending: PendingAnchor | PendingElementwise) -> View:
    """Return a product computed now, as a new matrix."""
    target = lowering.new_view(pending.dtype, pending.shape)
    if isinstance(pending, PendingElementwise):
        return lowering.stores.store_elementwise(pending, target)
    pending.anchor.store(lowering, pending, target)  # type: ignore[attr-defined]  # a Product, which has it
    return target


def _transform(node: Node) -> str:
    transform = node.string_attribute("post_transform", "NONE")
    if transform not in TRANSFORMS:
        raise NotLowered(f"post transform {transform} is not generated")
    return transform
