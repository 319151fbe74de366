"""Products of vectors with matrices that indices choose from a constant stack: layers of experts in exports.

    y[slot] = W[ids[slot]] @ x[slot]

As it is written, each slot gets a copy of its matrix. Here slots are sorted by matrix, as those of a mixture of
experts are, and each matrix is multiplied, where it lies in panels, by all the vectors that ask for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.codegen.products.expert_rows import sorting_kernel
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise, PendingMatrices
from ort_core.cpu.lowering.products.expert_products import ExpertRows, FloatLayer
from ort_core.cpu.lowering.steps import KernelText, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import cast, element

F32, I64 = DataType.FLOAT, DataType.INT64
PRODUCTS = ("MatMul", "FusedMatMul")
LEAST_SIDE = 16  # of a matrix: narrower ones leave tiles mostly empty
LEAST_ELEMENTS = 1024  # of a matrix: a copy of fewer costs less than the sorting
MOST_MATRICES = 4096  # sorting goes over all of them, in about a nanosecond each


def matrices_for_product(
    lowering: Lowering, node: Node, indices: Callable[[], View], copy: Callable[[], View]
) -> PendingMatrices | None:
    """Return what a gather along the first axis gives, if only a product reads it and may find it where it lies.

    Args:
        lowering: receives the steps.
        node: the gather.
        indices: returns the indices, of the result's shape without that of a matrix.
        copy: writes the step of the gather, and returns the result.
    """
    table, (dtype, shape) = node.input(0), tensor_type(node.output)
    constant = lowering.constant_of(table)
    if table is None or constant is None or constant.dtype != np.float32 or constant.ndim != 3 or dtype is not F32:
        return None
    count, rows, columns = constant.shape
    is_large = min(rows, columns) >= LEAST_SIDE and rows * columns >= LEAST_ELEMENTS
    if not is_large or not 0 < count <= MOST_MATRICES or len(shape) < 3 or shape[-2:] != (rows, columns):
        return None
    return PendingMatrices(table, indices, shape, copy) if _is_multiplied(lowering, node.output) else None


def _is_multiplied(lowering: Lowering, value: Value) -> bool:
    """Return whether only products read a value, or the value transposed."""
    readers = list(value.readers())
    if lowering.is_output(value) or not readers or len(readers) != value.use_count:
        return False
    return all(
        lowering.is_member(reader)
        and (reader.op_type in PRODUCTS or (turns_matrices(reader) and _is_multiplied(lowering, reader.output)))
        for reader in readers
    )


def turns_matrices(node: Node) -> bool:
    """Return whether a node is a Transpose of the last two axes."""
    if node.op_type != "Transpose" or node.domain:
        return False
    rank = len(tensor_type(node.output)[1])
    order = tuple(node.ints_attribute("perm") or range(rank)[::-1])
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)


def chosen_product(lowering: Lowering, node: Node) -> bool:
    """Lower a product of chosen matrices with a vector for each; return whether it is one."""
    for place, other in ((0, 1), (1, 0)):
        value, vectors = node.input(place), node.input(other)
        known = None if value is None else lowering.pending(value)
        if isinstance(known, PendingMatrices) and vectors is not None:
            found = _operands(lowering, node, known, vectors, is_left=place == 0)
            if found is not None:
                _multiply(lowering, node, *found)
                return True
    return False


def _operands(
    lowering: Lowering, node: Node, matrices: PendingMatrices, vectors: Value, *, is_left: bool
) -> tuple[PendingMatrices, View] | None:
    """Return matrices (..., outputs, depth) and vectors (..., depth), ``None`` where a slot has more than one vector.

    ``is_left`` says on which side the matrices stand.
    """
    if any(node.int_attribute(name, 0) for name in ("transA", "transBatchA", "transBatchB")):
        return None
    dtype, shape = tensor_type(vectors)
    is_transposed = node.int_attribute("transB", 0) != 0
    # a vector is a column on the right, a row on the left; transposed, it is the other one
    axis = -1 if is_left and not is_transposed else -2
    if dtype is not F32 or len(shape) < 2 or shape[axis] != 1 or (is_left and is_transposed):
        return None
    batch = tensor_type(node.output)[1][:-2]
    if batch != matrices.shape[:-2]:
        return None
    if not is_left and not is_transposed:
        matrices = matrices.turned()
    lowering.require_equal(shape[-2 if axis == -1 else -1], matrices.shape[-1])
    view = lowering.view(vectors)
    rank = len(view.shape)
    kept = [*range(rank - 2), rank - 2 if axis == -1 else rank - 1]
    rows = View(view.buffer, tuple(view.shape[i] for i in kept), tuple(view.strides[i] for i in kept), view.offset)
    wanted = (*batch, matrices.shape[-1])
    rows = lowering.operands.spread(rows, wanted)
    strides = broadcast_strides(rows, wanted)
    assert strides is not None, "it was spread"
    return matrices, View(rows.buffer, wanted, strides, rows.offset)


def _multiply(lowering: Lowering, node: Node, matrices: PendingMatrices, vectors: View) -> None:
    """Sort the vectors by matrix, multiply, and put each result where its slot is."""
    outputs, depth = matrices.shape[-2:]
    assert isinstance(outputs, int)
    assert isinstance(depth, int)
    constant = lowering.constant_of(matrices.table)
    assert constant is not None
    slots = count_of(vectors.shape[:-1])
    rows, places, owners = _sorted(lowering, node, matrices, len(constant), slots)
    dense = vectors if vectors.is_contiguous else lowering.copied(vectors)
    given = _rows(lowering, node, dense.reshaped((slots, depth)), owners, lowering.new_view(F32, (slots, depth)))
    layer = _layer(lowering, constant, outputs, depth, is_turned=matrices.is_turned)
    answers = layer.product(lowering, node, rows, given)
    alpha = node.float_attribute("alpha", 1.0)
    shape = tensor_type(node.output)[1]
    target = lowering.result_view(node.output) if alpha == 1.0 else lowering.new_view(F32, shape)
    _rows(lowering, node, answers, places, target)
    scaled = PendingElementwise(element(0, F32) * alpha, (target,), shape, (node,))
    lowering.set(node.output, target if alpha == 1.0 else scaled)


def _sorted(
    lowering: Lowering, node: Node, matrices: PendingMatrices, count: int, slots: KnownDim
) -> tuple[ExpertRows, View, View]:
    """Return the rows by matrix, which row each slot got, and whose rows they are; once for the same indices."""
    indices = matrices.indices()

    def sort() -> tuple[ExpertRows, View, View]:
        chosen = indices
        if indices.dtype is not I64:
            chosen = lowering.computed(cast(element(0, indices.dtype), I64), [indices])
        starts = lowering.new_view(I64, (count + 1,))
        places, owners = lowering.new_view(I64, (slots,)), lowering.new_view(I64, (slots,))
        kernel = sorting_kernel(is_checked=True)
        arguments = (
            *map(pointer, (starts, places, owners, chosen)), slots, count, 1, Pointer(lowering.error_buffer())
        )  # fmt: skip
        lowering.emit(
            KernelText(kernel.name, kernel), arguments, [chosen.buffer],
            [starts.buffer, places.buffer, owners.buffer], slots * 4 + count, (node,), most_pieces=1,
        )  # fmt: skip
        return ExpertRows(starts, count, slots), places, owners

    return lowering.remembered(("sorted by matrix", indices, count), sort)


def _rows(lowering: Lowering, node: Node, source: View, numbers: View, target: View) -> View:
    """Write the step that copies rows of a source by their numbers."""
    name, function = gather_kernel(64)
    count, width = source.shape
    arguments = (
        *map(pointer, (target, source, numbers)), Pointer(lowering.error_buffer()), 1, count, count,
        width * F32.numpy.itemsize,
    )  # fmt: skip
    reads = (source.buffer, numbers.buffer)
    lowering.emit(KernelText(name, function), arguments, reads, (target.buffer,), count_of(source.shape), (node,))
    return target


def _layer(lowering: Lowering, constant: np.ndarray, outputs: int, depth: int, *, is_turned: bool) -> FloatLayer:
    """Return matrices in panels, as a layer of experts; they are stored (count, outputs, depth) unless turned."""
    count, width = len(constant), tile_shape(lowering.target).columns
    packed = panels_shape((count, depth, outputs), width)

    def fill(out: np.ndarray) -> None:
        for matrix, panels in zip(constant, out, strict=True):
            pack_panels(matrix if is_turned else matrix.T, width, panels)

    layout = f"matrices {width} {is_turned}"
    panels = lowering.weights.packed(constant, layout, lambda: aligned_empty(packed), fill)
    return FloatLayer(lowering.constant_view(panels, F32), panels[0].size, True, depth, outputs, None)
