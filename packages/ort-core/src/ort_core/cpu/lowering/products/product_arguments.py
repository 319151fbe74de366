"""The argument table of a matrix product step, from views."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.products.expression_epilogue import WORDS
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, BATCH_DIMS
from ort_core.cpu.lowering.steps import Argument, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import Buffer, View, broadcast_strides, collapse, tallest_last
from ort_core.plugin import frozen
from ort_core.plugin.ir import KnownDim


@frozen
class ProductMemory:
    """What a product needs beside its operands: scratch for each thread, and the table of tiles."""

    scratch: Buffer
    scratch_nbytes: int
    tiles: Buffer


@frozen
class ProductRows:
    """The rows of a product with a constant right side: ``sizes``, innermost last, and the operands' strides there.

    ``strides`` are those of A, of the result, and of each operand of the epilogue.
    """

    sizes: tuple[KnownDim, ...]
    strides: tuple[tuple[KnownDim, ...], ...]


def rows_of(a: View, target: View, inputs: Sequence[View], shape: Sequence[KnownDim]) -> ProductRows:
    """Return all axes of a result but the last as few rows and batches as the strides allow.

    Raises:
        NotLowered: they take more strides than the kernel has.
    """
    operands: list[Sequence[KnownDim]] = [a.strides[:-1], target.strides[:-1]]
    for view in inputs:
        strides = broadcast_strides(view, shape)
        assert strides is not None
        operands.append(strides[:-1])
    sizes, found = tallest_last(*collapse(shape[:-1], operands))
    if len(sizes) - 1 > BATCH_DIMS:
        raise NotLowered(f"more than {BATCH_DIMS} batch dimensions are not generated")
    return ProductRows(tuple(sizes), tuple(tuple(each) for each in found))


def product_words(
    a: View, weights: View, target: View, inputs: Sequence[View], rows: ProductRows, memory: ProductMemory
) -> list[Argument]:
    """Return the table of a product with packed weights and the words of an ``ExpressionEpilogue`` behind it."""
    words: list[Argument] = [0] * ARGUMENTS.count
    values: dict[int, Argument] = {
        ARGUMENTS.a: pointer(a), ARGUMENTS.b: pointer(weights), ARGUMENTS.c: pointer(target),
        ARGUMENTS.m: rows.sizes[-1], ARGUMENTS.n: target.shape[-1], ARGUMENTS.k: a.shape[-1],
        ARGUMENTS.a_row: rows.strides[0][-1], ARGUMENTS.a_k: a.strides[-1], ARGUMENTS.c_row: rows.strides[1][-1],
        ARGUMENTS.scratch: Pointer(memory.scratch), ARGUMENTS.scratch_stride: memory.scratch_nbytes,
        ARGUMENTS.tiles: Pointer(memory.tiles),
    }  # fmt: skip
    for position, value in values.items():
        words[position] = value
    empty = BATCH_DIMS - (len(rows.sizes) - 1)
    words[ARGUMENTS.batch : ARGUMENTS.batch + BATCH_DIMS] = [*[1] * empty, *rows.sizes[:-1]]
    for start, operand in ((ARGUMENTS.a_batch, 0), (ARGUMENTS.c_batch, 1)):
        words[start : start + BATCH_DIMS] = [*[0] * empty, *rows.strides[operand][:-1]]
    for view, steps in zip(inputs, rows.strides[2:], strict=True):
        own = [pointer(view), steps[-1], *[0] * empty, *steps[:-1]]
        assert len(own) == WORDS
        words.extend(own)
    return words
