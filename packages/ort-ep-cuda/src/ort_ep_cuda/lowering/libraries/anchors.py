"""Anchors: products and convolutions before their results have a place, so that what follows may be fused into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ort_core.plugin.loops import Scalar, cast, lift
from ort_ep_cuda.lowering.libraries.library_steps import Convolution, MatrixProduct
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import compute_type

NOWHERE = -1  # the buffer of a result that has no place yet


@dataclass(frozen=True, slots=True)
class Addend:
    """What an operator adds to its product by itself: ``beta * tensor``, of the result's shape once it is broadcast."""

    tensor: LazyTensor
    beta: float = 1.0


@dataclass(frozen=True, slots=True)
class Anchor:
    """A library call whose result lies nowhere yet.

    ``step`` is ``None`` where there is nothing to sum: the product is zero. Its ``out`` may have another shape than
    the node's result, but has its elements; ``order`` is that of the result's axes in memory (empty: row-major).
    """

    step: MatrixProduct | Convolution | None
    shape: Shape
    addend: Addend | None = None
    order: Shape = ()

    def place(self, view: TensorView) -> TensorView:
        """Return the view by which the step writes a result."""
        assert self.step is not None
        if isinstance(self.step, Convolution):
            return view
        return replace(TensorView.dense(view.buffer, view.dtype, self.step.out.shape), offset=view.offset)


def nowhere(like: TensorView, shape: Shape, order: Shape = ()) -> TensorView:
    """Return a view of a result of the given shape that lies nowhere."""
    return TensorView.in_order(NOWHERE, like.dtype, shape, order)


def lower_anchor(facts: LoweredNode, anchor: Anchor) -> None:
    """Let the library compute the product alone; its addend joins the next elementwise kernel."""
    builder = facts.builder
    if anchor.addend is None:
        fill(facts, anchor, builder.result(facts.output, anchor.shape, anchor.order))
        return
    product = builder.temporary(anchor.addend.tensor.dtype, anchor.shape, anchor.order)
    fill(facts, anchor, product)
    builder.define(facts.output, summed(product, anchor.addend))


def fill(facts: LoweredNode, anchor: Anchor, out: TensorView) -> None:
    """Add the step that writes the product, or zeros."""
    if not out.size:
        return
    if anchor.step is None:
        facts.builder.stored(LazyTensor(lift(0.0, compute_type(out.dtype)), (), out.shape, out.dtype), out)
        return
    place = anchor.place(out)
    if place.strides == anchor.step.out.strides:
        facts.builder.add(anchor.step.placed(place))
        return
    inner = facts.builder.temporary(out.dtype, anchor.shape, anchor.order)  # an output of the graph is row-major
    facts.builder.add(anchor.step.placed(anchor.place(inner)))
    facts.builder.stored(LazyTensor.of(inner), out)


def summed(product: TensorView, addend: Addend) -> LazyTensor:
    """Return a product and its addend as one expression."""

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        added = cast(roots[1], roots[0].dtype)
        return roots[0] + (added if addend.beta == 1.0 else added * addend.beta)

    tensors = [LazyTensor.of(product), addend.tensor.broadcast_to(product.shape)]
    return combine(tensors, meaning, product.dtype)
