"""Formulas of users' operators: those of one element fuse like built-in ones, those of rows become one row kernel.

The formula is called with the expressions that its inputs are by then, so that elementwise nodes in front of it are
computed in its own kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from ort_core.plugin import NotImplemented, OrtError, Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.loops import (
    ElementMeaning,
    InputLayout,
    OpMeaning,
    RowMeaning,
    Scalar,
    cast,
    element,
    is_of_row,
    print_expression,
    print_row_kernel,
    row_blocks,
)
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.elementwise import HALVES, symbol
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.preamble import STORAGE
from ort_ep_cuda.lowering.program import Argument, Kernel, Launch, Pointer
from ort_ep_cuda.lowering.tensors import LazyTensor, combine, join
from ort_ep_cuda.lowering.views import Shape, TensorView, collapse

_T = TypeVar("_T")
FORMULA_TYPES = frozenset(STORAGE) - HALVES
"""Element types that printed formulas have; 16-bit floats are not among them."""


def refuse_formula(meaning: OpMeaning, node: Node) -> str | None:
    """Return why a node's formula is not generated, ``None`` where it is."""
    if not list(node.present_inputs()):
        return "a formula without inputs is not generated"
    try:
        if isinstance(meaning, RowMeaning):
            return _refuse_rows(meaning, node)
        return _refuse_element(meaning, node)
    except (OrtError, ValueError) as error:  # the user's function failed; an element type or operation has no CUDA form
        return str(error)


def lower_formula(meaning: OpMeaning, facts: LoweredNode) -> None:
    """Define the outputs of a node by its formula."""
    if isinstance(meaning, RowMeaning):
        _lower_rows(meaning, facts)
        return
    tensors = [facts.builder.tensor(value) for value in facts.node.present_inputs()]
    shape = broadcast(*(tensor.shape for tensor in tensors))

    def formula(roots: Sequence[Scalar]) -> Scalar:
        found = meaning(_in_places(facts.node, roots), facts.attributes)
        return _not_refused(facts.node, found)

    dtype = element_type(facts.output)
    facts.builder.define(facts.output, combine([t.broadcast_to(shape) for t in tensors], formula, dtype))


def _refuse_element(meaning: ElementMeaning, node: Node) -> str | None:
    scalars = [symbol(index, value) for index, value in enumerate(node.present_inputs())]
    found = meaning(_in_places(node, scalars), _attributes(node))
    if isinstance(found, Rejection):
        return found.reason
    print_expression(found, lambda index: "x")
    return _refuse_types([found], [node.output])


def _refuse_rows(meaning: RowMeaning, node: Node) -> str | None:
    dtypes = [element_type(value) for value in node.present_inputs()]
    elements = [element(index, dtype) for index, dtype in enumerate(dtypes)]
    found = meaning.formula(_in_places(node, elements), _attributes(node))
    if isinstance(found, Rejection):
        return found.reason
    print_row_kernel(found, [InputLayout.STRIDED] * len(dtypes), 2, dtypes)
    return _refuse_types(found, node.outputs)


def _refuse_types(roots: Sequence[Scalar], outputs: Sequence[Value | None]) -> str | None:
    for root, value in zip(roots, outputs, strict=False):
        if value is not None and root.dtype is not element_type(value):
            return f"the formula of {value.name!r} gives {root.dtype.text}, expected {element_type(value).text}"
    return None


def _in_places(node: Node, present: Sequence[Scalar]) -> list[Scalar]:
    """Return expressions in the places of a node's inputs, ``None`` for those that are absent."""
    left = iter(present)
    return [None if value is None else next(left) for value in node.inputs]  # type: ignore[misc]  # a user's formula takes None


def _attributes(node: Node) -> Mapping[str, object]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


def _lower_rows(meaning: RowMeaning, facts: LoweredNode) -> None:
    node = facts.node
    tensors = [_readable(facts, facts.builder.tensor(value)) for value in node.present_inputs()]
    shape = broadcast(*(tensor.shape for tensor in tensors))
    if not shape:
        raise NotImplemented(f"{node.describe()}: a row formula needs an input with at least one axis")

    def formulas(of: Sequence[LazyTensor]) -> tuple[list[Scalar], tuple[TensorView, ...]]:
        roots, operands = join([tensor.broadcast_to(shape) for tensor in of])
        return list(_not_refused(node, meaning.formula(_in_places(node, roots), facts.attributes))), operands

    symbols = [element(index, tensor.root.dtype) for index, tensor in enumerate(tensors)]
    plain = _not_refused(node, meaning.formula(_in_places(node, symbols), facts.attributes))
    is_narrow = [is_of_row(root) for root in plain]
    roots, operands = formulas(tensors)
    if [is_of_row(root) for root in roots] != is_narrow:  # a constant input left no element to be read: store it
        roots, operands = formulas([t if t.operands else LazyTensor.of(facts.builder.stored(t)) for t in tensors])
    kept = [(value, roots[k], is_narrow[k]) for k, value in enumerate(node.outputs) if value is not None]
    outs = [facts.builder.result(value, (*shape[:-1], 1) if narrow else shape) for value, _, narrow in kept]
    if any(out.size for out in outs):
        facts.builder.add(launch_row_formulas([root for _, root, _ in kept], operands, outs, shape))


def _readable(facts: LoweredNode, tensor: LazyTensor) -> LazyTensor:
    """Return a tensor whose operands a printed row kernel reads: one computed of 16-bit floats is stored first."""
    if any(view.dtype in HALVES for view in tensor.operands):
        return LazyTensor.of(facts.builder.stored(tensor))
    return tensor


def launch_row_formulas(
    roots: Sequence[Scalar], operands: Sequence[TensorView], outs: Sequence[TensorView], shape: Shape
) -> Launch:
    """Return the launch that computes row formulas.

    Args:
        roots: one for each of ``outs``; input ``k`` is an element of ``operands[k]``.
        operands: views of the shape ``shape``; its last axis is the row.
        outs: dense; of ``shape``, or with a last axis of 1 where the formula is one value of the row.
        shape: of at least one axis.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1]
    sizes, strides = collapse(shape[:-1], [view.strides[:-1] for view in operands])
    layouts = [_layout(view) for view in operands]
    wanted = [cast(root, out.dtype) for root, out in zip(roots, outs, strict=True)]
    printed = print_row_kernel(wanted, layouts, len(sizes) + 1, [view.dtype for view in operands])
    numbers = [rows, columns]
    if InputLayout.STRIDED in layouts:
        numbers += sizes[1:]
    for layout, view, before in zip(layouts, operands, strides, strict=True):
        numbers += (*before, view.strides[-1]) if layout is InputLayout.STRIDED else ()
    arguments: tuple[Argument, ...] = (*map(Pointer.of, (*operands, *outs)), *map(np.int64, numbers))
    grid, block = row_blocks(rows, columns)
    kernel = Kernel(printed.name, printed.source)
    reads, writes = tuple(view.buffer for view in operands), tuple(view.buffer for view in outs)
    return Launch(kernel, grid, block, arguments, reads, writes)


def _layout(view: TensorView) -> InputLayout:
    if view.is_dense:
        return InputLayout.DENSE
    is_one = all(stride == 0 or size == 1 for size, stride in zip(view.shape, view.strides, strict=True))
    return InputLayout.SCALAR if is_one else InputLayout.STRIDED


def _not_refused(node: Node, found: _T | Rejection) -> _T:
    if isinstance(found, Rejection):
        raise NotImplemented(f"{node.describe()}: {found.reason}")
    return found
