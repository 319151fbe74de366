"""Tree ensembles: TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.machine_learning.class_scores import TRANSFORMS, ClassScores
from ort_core.cpu.codegen.machine_learning.trees import (
    TreeKernel,
    block_rows,
    padded_targets,
    scores_nbytes,
    tree_kernel,
)
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.machine_learning.classes import Labels, emit_class_scores, labels_of, paired
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.tree_tables import TreeTables, tables_of, tree_tables
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import Buffer, Place, View
from ort_core.plugin import InvalidArgument, frozen
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.kernels import TreeBatch, TreeEnsemble, TreeModel, tree_model, tree_models
from ort_core.plugin.loops import cast, element

F32, F64 = DataType.FLOAT, DataType.DOUBLE
_JOINED = frozenset({"TreeEnsembleRegressor", "TreeEnsembleClassifier"})
_NO_ENTRIES, _NO_BASE = np.zeros(1, np.int32), np.zeros(1)  # where leaves have weights of their own; without offsets
_WALKED = 12  # elements' worth of work that one walk through one tree is


def tree_ensemble(lowering: Lowering, node: Node) -> None:
    """TreeEnsemble and TreeEnsembleRegressor: the leaves' sums, base values, post transform."""
    model = _model(lowering, node)
    targets = model.ensemble.target_count
    features = _features(lowering, node.input(0))
    result, shape = tensor_type(node.output)
    if node.op_type == "TreeEnsemble" and features.dtype is not result:
        raise NotLowered("TreeEnsemble of integers is not generated")
    if model.base is not None and len(model.base) != targets:
        raise NotLowered(f"it has {len(model.base)} base values for {targets} targets")
    transform = model.post_transform if targets > 1 or model.post_transform == "PROBIT" else "NONE"
    if transform != "NONE" and (transform not in TRANSFORMS or result is not F32):
        raise NotLowered(f"post transform {transform} of {result.text} is not generated")
    target = lowering.result_view(node.output)
    lowering.require_equal(shape[0], features.shape[0])
    lowering.require_equal(shape[1], targets)
    sums = target if transform == "NONE" else lowering.new_view(result, (features.shape[0], targets))
    _emit_walks(lowering, node, features, model.ensemble, model.aggregate, model.base, sums)
    if transform != "NONE":
        emit_class_scores(lowering, node, ClassScores(transform), sums, target, None)
    lowering.set(node.output, target)


def tree_classifier(lowering: Lowering, node: Node) -> None:
    """TreeEnsembleClassifier: sums, and the label of the largest; one or two classes have rules of their own."""
    model = _model(lowering, node)
    labels = labels_of(node, "classlabels_int64s")
    features = _features(lowering, node.input(0))
    rows, count = features.shape[0], len(labels)
    if model.post_transform not in TRANSFORMS:
        raise NotLowered(f"post transform {model.post_transform} is not generated")
    if count == 1:
        raise NotLowered("a model of one class is not generated")
    if count == 2 and len(model.scored) == 2 and labels.tolist() != [0, 1]:
        raise NotLowered("labels other than 0 and 1 are not generated where the trees score both classes")
    ensemble, base, scores = _binary(model) if count == 2 else (model.ensemble, model.base, _largest(model))
    if base is not None and len(base) != ensemble.target_count:
        raise NotLowered(f"it has {len(base)} base values for {count} classes")
    results = lowering.result_view(node.outputs[1]) if node.outputs[1:] and node.outputs[1] is not None else None
    in_place = results is not None and scores.scores.transform == "NONE" and not scores.scores.pair
    sums = results if results is not None and in_place else lowering.new_view(F32, (rows, ensemble.target_count))
    _emit_walks(lowering, node, features, ensemble, "SUM", base, sums)
    spec = scores.scores
    if results is None or in_place:
        spec = ClassScores("", spec.label, spec.threshold)
    label = Labels(labels, lowering.result_view(node.output), scores.column) if node.outputs[0] is not None else None
    emit_class_scores(lowering, node, spec, sums, results, label)
    if label is not None:
        lowering.set(node.output, label.view)
    if results is not None:
        lowering.set(node.outputs[1], results)


@frozen
class _Scores:
    """How sums become labels and scores; ``column`` is the one that is compared with the threshold."""

    scores: ClassScores
    column: int = 0


def _largest(model: TreeModel) -> _Scores:
    return _Scores(ClassScores(model.post_transform, "largest"))


def _binary(model: TreeModel) -> tuple[TreeEnsemble, np.ndarray | None, _Scores]:
    """Return what two classes come to: trees that score one class only decide by a threshold.

    Scored under class 0, the score s is that of the second class, and the first column is made: 1 - s, or -s.
    """
    threshold = 0.5 if model.all_positive else 0.0
    base = model.base
    if base is not None and (len(base) == 2 or model.scored != {0}):
        raise NotLowered("base values of two classes are not generated")
    if model.scored == {0}:
        single = _with_targets(model.ensemble, 1)
        spec = paired(model.post_transform, ClassScores("", "above", threshold), not model.all_positive)
        return single, None if base is None else base[-1:], _Scores(spec)
    if model.scored != {1}:
        threshold = 0.0  # where both are scored the sign of the second class decides
    return model.ensemble, None, _Scores(ClassScores(model.post_transform, "above", threshold), 1)


def _with_targets(ensemble: TreeEnsemble, count: int) -> TreeEnsemble:
    from dataclasses import replace

    return replace(ensemble, target_count=count)


def _model(lowering: Lowering, node: Node) -> TreeModel:
    batch = _batch(lowering)
    if node in batch.numbers and batch.together is not None:
        return batch.together.models[batch.numbers[node]]
    try:
        return tree_model(node.op_type, node.attributes)
    except InvalidArgument as error:
        raise NotLowered(f"the attributes describe no trees: {error}") from error


@dataclass(slots=True)
class _Batch:
    """All tree nodes of a group by their numbers, decoded together where that can be, and their tables by type."""

    numbers: dict[Node, int]
    together: TreeBatch | None
    tables: dict[np.dtype, list[TreeTables]]


def _batch(lowering: Lowering) -> _Batch:
    def decode() -> _Batch:
        nodes = [node for node in lowering.nodes if node.domain == "ai.onnx.ml" and node.op_type in _JOINED]
        together = tree_models([(node.op_type, node.attributes) for node in nodes]) if len(nodes) > 1 else None
        return _Batch({node: number for number, node in enumerate(nodes)}, together, {})

    return lowering.remembered("trees", decode)


def _tables(lowering: Lowering, node: Node, ensemble: TreeEnsemble, dtype: np.dtype) -> TreeTables:
    batch = _batch(lowering)
    if batch.together is None or node not in batch.numbers:
        return tree_tables(ensemble, dtype)
    if dtype not in batch.tables:
        batch.tables[dtype] = tables_of(batch.together.joined, batch.together.shares, dtype)
    return batch.tables[dtype][batch.numbers[node]]


def _features(lowering: Lowering, value: Value | None) -> View:
    """Return the rows as a dense matrix of float32 or float64; integers become float32, as in onnxruntime."""
    view = lowering.contiguous(value)
    if len(view.shape) != 2:
        raise NotLowered("features that are not a matrix are not generated")
    if view.dtype in (F32, F64):
        return view
    return lowering.computed(cast(element(0, view.dtype), F32), (view,))


@frozen
class _Leaves:
    """The leaves' weights: ``width`` to a leaf (padded), or (0) entries with their targets."""

    width: int
    weights: np.ndarray
    starts: np.ndarray
    targets: np.ndarray


def _leaves(ensemble: TreeEnsemble, aggregate: str) -> _Leaves:
    """Return the weights, by leaf where that wastes little memory; a leaf without entries comes last."""
    count, padded = len(ensemble.leaf_starts) - 1, padded_targets(ensemble.target_count)
    weights = ensemble.entry_weights
    if aggregate in ("MIN", "MAX") and not np.isfinite(weights).all():
        raise NotLowered("the least or greatest of weights that are not finite")
    kind = np.float32 if (weights.astype(np.float32) == weights).all() else np.float64
    if padded > 8 and count * padded > 2 * len(weights):
        starts = np.append(ensemble.leaf_starts, ensemble.leaf_starts[-1]).astype(np.int32)
        return _Leaves(0, weights.astype(kind), starts, ensemble.entry_targets.astype(np.int32))
    neutral = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    table = np.full((count + 1, padded), neutral)
    leaf = np.repeat(np.arange(count), np.diff(ensemble.leaf_starts))
    join = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    join.at(table, (leaf, ensemble.entry_targets), weights)
    if (table.astype(kind) != table).any():
        kind = np.float64
    return _Leaves(padded, table.astype(kind), _NO_ENTRIES, _NO_ENTRIES)


def _emit_walks(
    lowering: Lowering,
    node: Node,
    features: View,
    ensemble: TreeEnsemble,
    aggregate: str,
    base: np.ndarray | None,
    sums: View,
) -> None:
    tables = _tables(lowering, node, ensemble, features.dtype.numpy)
    leaves = _leaves(ensemble, aggregate)
    targets = ensemble.target_count
    columns = features.shape[1]
    row = columns if isinstance(columns, int) and columns < 4096 else 0
    weight = F32 if leaves.weights.dtype == np.float32 else F64
    spec = TreeKernel(
        features.dtype, sums.dtype, weight, aggregate, leaves.width, row, tables.has_nan_bits, base is not None
    )
    if isinstance(columns, int) and columns < tables.columns:
        raise NotLowered(f"feature {tables.columns - 1} of {columns} is asked for")
    name, function = tree_kernel(spec)
    scratch = lowering.scratch(DataType.UINT8, scores_nbytes(targets))
    constants = (tables.records, tables.trees, leaves.weights, leaves.starts, leaves.targets)
    records, trees, weights, starts, entries = (Pointer(_constant(lowering, array)) for array in constants)
    offsets = _NO_BASE if base is None else base.astype(np.float64)
    arguments: list[Argument] = [
        pointer(features), records, trees, tables.real, weights, starts, entries,
        Pointer(_constant(lowering, offsets)), pointer(sums),
        Pointer(scratch), scores_nbytes(targets), features.shape[0], columns, targets, len(tables.trees),
        Pointer(lowering.error_buffer()), columns, tables.columns, padded_targets(targets),
        block_rows(targets),
    ]  # fmt: skip
    reads = [features.buffer]
    work = features.shape[0] * tables.real * _WALKED
    lowering.emit(KernelText(name, function), arguments, reads, [sums.buffer, scratch], work, (node,), work)


def _constant(lowering: Lowering, array: np.ndarray) -> Buffer:
    """Return the memory of a constant; what stands for nothing is one for all nodes."""
    if array is _NO_ENTRIES or array is _NO_BASE:
        return lowering.remembered(("no trees have it", id(array)), lambda: _buffer(array))
    return _buffer(array)


def _buffer(array: np.ndarray) -> Buffer:
    dense = np.ascontiguousarray(array)
    return Buffer(DataType.UINT8, dense.nbytes, Place.CONSTANT, 0, dense)
