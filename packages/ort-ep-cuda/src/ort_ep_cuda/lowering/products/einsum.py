"""Einsum: two operands that share summed letters are a matrix product; anything else is summed by a row kernel.

``bhid,bhjd->bhij``: batch bh, rows i, columns j, inner d
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import Node
from ort_core.plugin.loops import Scalar, row_sum
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.products import PRODUCT_TYPES, multiply
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine, join
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import compute_type
from ort_ep_cuda.lowering.writing.row_kernel import launch_rows

_TERM = re.compile(r"^[A-Za-z]*(\.\.\.)?[A-Za-z]*$")


@dataclass(frozen=True, slots=True)
class Equation:
    """Letters of each operand and of the result; an ellipsis has become digits, which no letter of the user is."""

    operands: tuple[str, ...]
    result: str

    @classmethod
    def of(cls, text: str, ranks: Sequence[int]) -> Equation:
        """Read an equation for operands of these ranks."""
        left, arrow, right = text.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != len(ranks) or not all(_TERM.match(term) for term in (*terms, right)):
            raise InvalidArgument(f"Einsum: {text!r} is not an equation of {len(ranks)} operands")
        hidden = max((rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)), default=0)
        digits = "0123456789"[: max(hidden, 0)]

        def spelled(term: str, rank: int) -> str:
            return term.replace("...", digits[len(digits) - (rank - len(term) + 3) :] if "..." in term else "")

        operands = tuple(spelled(term, rank) for term, rank in zip(terms, ranks, strict=True))
        if not arrow:
            letters = "".join(operands)
            right = digits + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in digits))
        return cls(operands, right.replace("...", digits))


def refuse_einsum(node: Node) -> str | None:
    """Return why an Einsum is not generated: element types without arithmetic here."""
    dtype = element_type(node.output)
    return None if compute_type(dtype).bits >= 32 else f"Einsum of {dtype.text} is not generated"


def lower_einsum(facts: LoweredNode) -> None:
    """Multiply and sum as the equation says."""
    tensors = [facts.builder.tensor(value) for value in facts.node.present_inputs()]
    equation = Equation.of(facts.node.string_attribute("equation", ""), [len(tensor.shape) for tensor in tensors])
    sizes: dict[str, int] = {}
    for letters, tensor in zip(equation.operands, tensors, strict=True):
        for letter, size in zip(letters, tensor.shape, strict=True):
            sizes[letter] = size if sizes.get(letter, 1) == 1 else sizes[letter]
    if _is_product(equation, tensors):
        _multiply(facts, equation, sizes)
    else:
        _sum(facts, equation, tensors, sizes)


def _is_product(equation: Equation, tensors: Sequence[LazyTensor]) -> bool:
    """Whether the operands are two, each with distinct letters, whose letters are all shared or in the result."""
    if len(tensors) != 2 or tensors[0].dtype not in PRODUCT_TYPES:
        return False
    a, b = equation.operands
    shared = set(a) & set(b) - set(equation.result)
    distinct = len(set(a)) == len(a) and len(set(b)) == len(b)
    return bool(shared) and distinct and (set(a) ^ set(b)) <= set(equation.result)


def _multiply(facts: LoweredNode, equation: Equation, sizes: dict[str, int]) -> None:
    a, b = equation.operands
    batch = [c for c in equation.result if c in a and c in b]
    rows = [c for c in equation.result if c in a and c not in b]
    columns = [c for c in equation.result if c in b and c not in a]
    inner = [c for c in a if c in b and c not in equation.result]
    left = _matrix(facts, 0, a, (batch, rows, inner), sizes)
    right = _matrix(facts, 1, b, (batch, inner, columns), sizes)
    order = "".join([*batch, *rows, *columns])
    shape = tuple(sizes[c] for c in order)
    flat = (_count(batch, sizes), _count(rows, sizes), _count(columns, sizes))
    if order == equation.result:
        out = facts.builder.result(facts.output, shape)
        multiply(facts, left, right, TensorView.dense(out.buffer, out.dtype, flat))
        return
    product = facts.builder.temporary(left.dtype, shape)
    multiply(facts, left, right, TensorView.dense(product.buffer, product.dtype, flat))
    view = product.permuted([order.index(c) for c in equation.result])
    facts.builder.define(facts.output, LazyTensor.of(view))


def _count(letters: Sequence[str], sizes: dict[str, int]) -> int:
    return math.prod(sizes[c] for c in letters)


def _matrix(
    facts: LoweredNode, index: int, letters: str, groups: Sequence[Sequence[str]], sizes: dict[str, int]
) -> TensorView:
    """Return an operand as ``[batch, rows, columns]``, each axis standing for a group of letters."""
    order = [c for group in groups for c in group]
    view = facts.builder.view(facts.value(index)).permuted([letters.index(c) for c in order])
    view = view.broadcast_to(tuple(sizes[c] for c in order))
    shape = tuple(_count(group, sizes) for group in groups)
    found = view.reshaped(shape)
    if found is None:
        stored = facts.builder.stored(LazyTensor.of(view))
        found = TensorView.dense(stored.buffer, stored.dtype, shape)
    return found


def _sum(facts: LoweredNode, equation: Equation, tensors: Sequence[LazyTensor], sizes: dict[str, int]) -> None:
    summed = [c for c in dict.fromkeys("".join(equation.operands)) if c not in equation.result]
    order = [*equation.result, *summed]
    shape = tuple(sizes[c] for c in order)
    wide = [
        _with_operand(facts, tensor).moved(lambda view, t=letters: _spread(view, t, order, sizes), shape)  # type: ignore[misc]  # a lambda's defaults bind the loop's variables
        for letters, tensor in zip(equation.operands, tensors, strict=True)
    ]
    if not summed:
        facts.builder.define(facts.output, combine(wide, _product, wide[0].dtype))
        return
    roots, operands = join(wide)
    out = facts.builder.result(facts.output, shape[: len(equation.result)])
    if out.size:
        facts.builder.add(launch_rows([row_sum(_product(roots))], operands, [out], len(out.shape)))


def _with_operand(facts: LoweredNode, tensor: LazyTensor) -> LazyTensor:
    return tensor if tensor.operands else LazyTensor.of(facts.builder.stored(tensor))


def _product(roots: Sequence[Scalar]) -> Scalar:
    result = roots[0]
    for root in roots[1:]:
        result = result * root
    return result


def _spread(view: TensorView, letters: str, order: Sequence[str], sizes: dict[str, int]) -> TensorView:
    """Return an operand over all letters: one that it lacks has stride 0, one that it repeats is its diagonal."""
    strides: dict[str, int] = dict.fromkeys(order, 0)
    for letter, size, stride in zip(letters, view.shape, view.strides, strict=True):
        strides[letter] += 0 if size == 1 and sizes[letter] != 1 else stride
    shape: Shape = tuple(sizes[c] for c in order)
    return TensorView(view.buffer, view.dtype, shape, tuple(strides[c] for c in order), view.offset)
