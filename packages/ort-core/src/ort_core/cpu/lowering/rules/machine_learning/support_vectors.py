"""SVMClassifier and SVMRegressor: a product with the support vectors, the kernel function, a product of decisions.

Probabilities are made of the decisions row by row (``codegen.coupling``).

RBF sums (x - s)^2 as it stands. A product of matrices would be faster, as |x|^2 + |s|^2 - 2 x s, but what cancels there
is as large as the spread of the features: of unscaled ones it costs half of the digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce

import numpy as np

from ort_core.cpu.codegen.machine_learning.class_scores import TRANSFORMS, ClassScores
from ort_core.cpu.codegen.machine_learning.pairwise_coupling import MAX_CLASSES, pairwise_coupling_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rows.reducing import combined, reduce_operand
from ort_core.cpu.lowering.rules.machine_learning.classes import Labels, emit_class_scores, labels_of, paired
from ort_core.cpu.lowering.rules.machine_learning.linear_models import feature_matrix, stored_product
from ort_core.cpu.lowering.rules.products import constant_product
from ort_core.cpu.lowering.steps import KernelText, NotLowered, pointer
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import Scalar, binary, element, exp, select, tanh

F32 = DataType.FLOAT
BOUNDED_KERNELS = frozenset(["RBF", "SIGMOID"])  # finite for every x that is no NaN
MAX_DEGREE = 16  # of a polynomial kernel that is multiplied out
SWEEPS = 30  # of a row until its probabilities are close, for the estimate of its work: 3 classes take 5, 10 take 50


def svm_regressor(lowering: Lowering, node: Node) -> None:
    """SVMRegressor: ``coefficients . k(X, support vectors) + rho``; with ``one_class`` 1 where positive, else -1."""
    features, width = feature_matrix(lowering, node)
    rho, coefficients = node.floats_attribute("rho"), node.floats_attribute("coefficients")
    count = node.int_attribute("n_supports", 0)
    terms = _kernels(lowering, node, features, width, count) if count > 0 else features
    if not rho or len(coefficients) != terms.shape[1] or node.string_attribute("post_transform", "NONE") == "PROBIT":
        raise NotLowered(f"it has {len(coefficients)} coefficients for {terms.shape[1]} terms, or no rho")
    product = constant_product(lowering, terms, np.array(coefficients, np.float32)[:, None], node.op_type)
    value = element(0, F32) + rho[0]
    if node.int_attribute("one_class", 0):
        value = select(binary("gt", value, 0.0), 1.0, -1.0)
    lowering.set(node.output, PendingAnchor(product, value, (), (features.shape[0], 1), (node,)))


def svm_classifier(lowering: Lowering, node: Node) -> None:
    """SVMClassifier: a decision for each pair of classes, each a vote; the class with most votes."""
    features, width = feature_matrix(lowering, node)
    labels = labels_of(node, "classlabels_ints")
    counts = node.ints_attribute("vectors_per_class") or ()
    transform = node.string_attribute("post_transform", "NONE")
    if transform not in TRANSFORMS:
        raise NotLowered(f"the transform {transform} is not generated")
    if len(labels) < 2 or len(counts) != len(labels) or min(counts) < 0:
        raise NotLowered(f"it has {len(labels)} labels for vectors of {len(counts)} classes")
    kernels = _kernels(lowering, node, features, width, sum(counts))
    is_bounded = node.string_attribute("kernel_type", "LINEAR") in BOUNDED_KERNELS
    scores = (_decisions if is_bounded else _decisions_by_class)(lowering, node, kernels, counts)
    votes = _votes(lowering, node, scores, len(labels))
    if node.outputs[0] is not None:
        place = Labels(labels, lowering.result_view(node.outputs[0]))
        emit_class_scores(lowering, node, ClassScores("", "largest"), votes, None, place)
        lowering.set(node.outputs[0], place.view)
    if node.outputs[1:] and node.outputs[1] is not None:
        results = lowering.result_view(node.outputs[1])
        spec = ClassScores(transform)
        if node.floats_attribute("prob_a"):
            scores = _probabilities(lowering, node, scores, len(labels))
        elif len(labels) == 2:
            spec = paired(transform, ClassScores(""), mirrors=transform == "NONE")
        emit_class_scores(lowering, node, spec, scores, results, None)
        lowering.set(node.outputs[1], results)


# kernels --------------------------------------------------------------------------------------------------------------


def _kernels(lowering: Lowering, node: Node, features: View, width: int, count: int) -> View:
    """Return k(x, s) for every row x and support vector s."""
    values = node.floats_attribute("support_vectors")
    if count <= 0 or len(values) != count * width:
        raise NotLowered(f"it has {len(values)} numbers for {count} support vectors of {width} features")
    vectors = np.array(values, np.float32).astype(np.float64).reshape(count, width)
    gamma, coefficient, degree = (*node.floats_attribute("kernel_params"), 0.0, 0.0, 0.0)[:3]
    kind = node.string_attribute("kernel_type", "LINEAR")
    if kind == "RBF":
        return _radial(lowering, node, features, vectors, gamma)
    product = element(0, F32)
    if kind == "POLY":
        product = _power(product * gamma + coefficient, degree)
    elif kind == "SIGMOID":
        product = tanh(product * gamma + coefficient)
    elif kind != "LINEAR":
        raise NotLowered(f"kernel type {kind} is not generated")
    return _product(lowering, node, features, vectors.T, product)


def _radial(lowering: Lowering, node: Node, features: View, vectors: np.ndarray, gamma: float) -> View:
    rows, (count, width) = features.shape[0], vectors.shape
    far = View(features.buffer, (rows, width, 1), (*features.strides, 0), features.offset)
    near = lowering.constant_view(np.ascontiguousarray(vectors.T, np.float32), F32)
    squares = combined((rows, width, count), lambda x, s: (x - s) * (x - s), far, near)
    distances = reduce_operand(lowering, squares, (1,), "sum", operators=(node,)).reshaped((rows, count))
    kernels = lowering.new_view(F32, (rows, count))
    lowering.stores.store(exp(element(0, F32) * -gamma), (distances,), kernels, (node,))
    return kernels


def _power(base: Scalar, degree: float) -> Scalar:
    if degree != int(degree) or not 1 <= degree <= MAX_DEGREE:
        raise NotLowered(f"a polynomial kernel of degree {degree} is not generated")
    return reduce(lambda left, right: left * right, [base] * int(degree))


def _product(
    lowering: Lowering, node: Node, left: View, right: np.ndarray, value: Scalar, inputs: tuple[View, ...] = ()
) -> View:
    product = constant_product(lowering, left, np.ascontiguousarray(right, np.float32), node.op_type)
    pending = PendingAnchor(product, value, inputs, (left.shape[0], right.shape[1]), (node,))
    return stored_product(lowering, pending)


# decisions ------------------------------------------------------------------------------------------------------------


def _decisions(lowering: Lowering, node: Node, kernels: View, counts: Sequence[int]) -> View:
    """Return the decision of each pair of classes; positive: the first of the two.

    One product, in which vectors of other classes have the weight 0.
    """
    table, rho, parts = _weights(node, counts)
    pairs = list(itertools.combinations(range(len(counts)), 2))
    weights = np.zeros((sum(counts), len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        weights[parts[i], column] = table[j - 1, parts[i]]
        weights[parts[j], column] = table[i, parts[j]]
    bias = lowering.constant_view(rho, F32)
    return _product(lowering, node, kernels, weights, element(0, F32) + element(1, F32), (bias,))


def _decisions_by_class(lowering: Lowering, node: Node, kernels: View, counts: Sequence[int]) -> View:
    """Return what ``_decisions`` does, of kernels that may be infinite: a product for each class's own vectors.

    The part of class ``i`` holds a column for each other class ``j``, ``j - 1`` where it comes later.
    """
    table, rho, parts = _weights(node, counts)
    rows, classes = kernels.shape[0], len(counts)
    others = classes - 1
    width = classes * others
    sums = lowering.new_view(F32, (rows, width))
    nothing = lowering.constant_view(np.zeros(1, np.float32), F32)
    for i, part in enumerate(parts):
        place = View(sums.buffer, (rows, others), (width, 1), i * others)
        if not counts[i]:
            none = View(nothing.buffer, (rows, others), (0, 0), nothing.offset)
            lowering.stores.store(element(0, F32), (none,), place, (node,))
            continue
        own = View(kernels.buffer, (rows, counts[i]), kernels.strides, kernels.offset + part.start)
        product = constant_product(lowering, own, np.ascontiguousarray(table[:, part].T), node.op_type)
        pending = PendingAnchor(product, element(0, F32), (), (rows, others), (node,))
        product.store(lowering, pending, place)
    count = len(rho)
    decisions, bias, done = lowering.new_view(F32, (rows, count)), lowering.constant_view(rho, F32), 0
    for i in range(others):
        shape = (rows, others - i)
        first = View(sums.buffer, shape, (width, 1), i * others + i)
        second = View(sums.buffer, shape, (width, others), (i + 1) * others + i)
        added = View(bias.buffer, shape, (0, 1), bias.offset + done)
        value = element(0, F32) + element(1, F32) + element(2, F32)
        target = View(decisions.buffer, shape, (count, 1), done)
        lowering.stores.store(value, (first, second, added), target, (node,))
        done += others - i
    return decisions


def _weights(node: Node, counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray, list[slice]]:
    """Return coefficients [classes - 1, vectors], the bias of each pair, and which vectors are of each class."""
    coefficients, rho, classes = node.floats_attribute("coefficients"), node.floats_attribute("rho"), len(counts)
    pairs, total = classes * (classes - 1) // 2, sum(counts)
    if len(coefficients) < (classes - 1) * total or len(rho) < pairs:
        raise NotLowered(f"it has {len(coefficients)} coefficients and {len(rho)} rho for {classes} classes")
    table = np.array(coefficients[: (classes - 1) * total], np.float32).reshape(classes - 1, total)
    parts = [slice(start, stop) for start, stop in itertools.pairwise(itertools.accumulate(counts, initial=0))]
    return table, np.array(rho[:pairs], np.float32), parts


def _votes(lowering: Lowering, node: Node, scores: View, classes: int) -> View:
    """Return how many more pairs each class wins than it loses; with NaN the second of a pair wins."""
    pairs = list(itertools.combinations(range(classes), 2))
    signs = np.zeros((len(pairs), classes), np.float32)
    for row, (i, j) in enumerate(pairs):
        signs[row, i], signs[row, j] = 1, -1
    score = element(0, F32)
    won = select(binary("gt", score, 0.0), 1.0, -1.0)
    return _product(lowering, node, lowering.computed(won, (scores,)), signs, element(0, F32))


# probabilities --------------------------------------------------------------------------------------------------------


def _probabilities(lowering: Lowering, node: Node, scores: View, classes: int) -> View:
    """Return the probability of each class by the decisions of all pairs."""
    pairs = classes * (classes - 1) // 2
    tables = [node.floats_attribute(name)[:pairs] for name in ("prob_a", "prob_b")]
    if min(map(len, tables)) < pairs:
        raise NotLowered(f"it has prob_a and prob_b for fewer than {pairs} pairs")
    if classes > MAX_CLASSES:
        raise NotLowered(f"probabilities of {classes} classes, more than {MAX_CLASSES}, are not generated")
    views = [lowering.constant_view(np.array(table, np.float32), F32) for table in tables]
    chances = lowering.new_view(F32, (scores.shape[0], classes))
    name, function = pairwise_coupling_kernel(classes)
    arguments = [pointer(chances), pointer(scores), *map(pointer, views), scores.shape[0]]
    work = scores.shape[0] * (SWEEPS * classes * classes)
    lowering.emit(KernelText(name, function), arguments, [scores.buffer], [chances.buffer], work, (node,))
    return chances
