"""Formulas of users' operators: those of one element fuse like built-in ones, those of rows become one row kernel.

The formula is called with the expressions that its inputs are by then, so that elementwise nodes in front of it are
computed in its own kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ort_core.plugin import NotImplemented, OrtError, Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.loops import (
    ElementMeaning,
    InputLayout,
    OpMeaning,
    RowMeaning,
    Scalar,
    element,
    is_of_row,
    print_expression,
    print_row_kernel,
)
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.elements.elementwise import HALVES, symbol
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine, join
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import COMPUTED
from ort_ep_cuda.lowering.writing.row_kernel import launch_rows

_T = TypeVar("_T")
FORMULA_TYPES = COMPUTED - HALVES
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
    tensors = [facts.builder.tensor(value) for value in node.present_inputs()]
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
        flat = [
            TensorView.dense(v.buffer, v.dtype, shape[:-1]) if n else v for v, (_, _, n) in zip(outs, kept, strict=True)
        ]
        facts.builder.add(launch_rows([root for _, root, _ in kept], operands, flat, len(shape) - 1))


def _not_refused(node: Node, found: _T | Rejection) -> _T:
    if isinstance(found, Rejection):
        raise NotImplemented(f"{node.describe()}: {found.reason}")
    return found
