"""LazyTensor: a value before it is stored: an expression over views. Elementwise nodes only make it larger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, cast, element, operations, substitute
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import compute_type


@dataclass(frozen=True, slots=True)
class LazyTensor:
    """An expression whose input ``k`` is an element of ``operands[k]``, all of the shape ``shape``.

    ``dtype`` is the element type in ONNX's sense; a 16-bit float is computed in float32.
    """

    root: Scalar
    operands: tuple[TensorView, ...]
    shape: Shape
    dtype: DataType

    @classmethod
    def of(cls, view: TensorView) -> LazyTensor:
        """Return the tensor that is a view."""
        return cls(element(0, compute_type(view.dtype)), (view,), view.shape, view.dtype)

    @property
    def view(self) -> TensorView | None:
        """The view that this is, or ``None`` where something is still to be computed."""
        is_view = self.root.operation == "input" and len(self.operands) == 1
        return self.operands[0] if is_view and self.operands[0].dtype is self.dtype else None

    @property
    def cost(self) -> int:
        """Number of distinct operations."""
        return operations(self.root)

    def broadcast_to(self, shape: Shape) -> LazyTensor:
        """Return the tensor repeated to a larger shape."""
        return self.moved(lambda view: view.broadcast_to(shape), shape)

    def moved(self, change: Callable[[TensorView], TensorView], shape: Shape) -> LazyTensor:
        """Return the tensor with a change of view applied to every operand: such changes commute with expressions."""
        return replace(self, operands=tuple(change(view) for view in self.operands), shape=shape)


def join(tensors: Sequence[LazyTensor]) -> tuple[list[Scalar], tuple[TensorView, ...]]:
    """Return the expressions of tensors of one shape over one list of operands; equal operands are read once."""
    operands: list[TensorView] = []
    roots: list[Scalar] = []
    for tensor in tensors:
        numbers: dict[int, Scalar] = {}
        for index, view in enumerate(tensor.operands):
            if view not in operands:
                operands.append(view)
            numbers[index] = element(operands.index(view), compute_type(view.dtype))
        roots.append(substitute(tensor.root, numbers))
    return roots, tuple(operands)


def combine(
    tensors: Sequence[LazyTensor], meaning: Callable[[Sequence[Scalar]], Scalar], dtype: DataType
) -> LazyTensor:
    """Return one tensor computed of several of one shape."""
    roots, operands = join(tensors)
    return LazyTensor(cast(meaning(roots), compute_type(dtype)), operands, tensors[0].shape, dtype)
