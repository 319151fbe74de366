"""Steps that a vendor's library runs: products, convolutions, attention, normalizations, and what it does behind them.

A step is also the key of its engine: two steps of equal ``layout`` run by one plan, wherever their tensors lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from ort_ep_cuda.lowering.values.views import Shape, TensorView

if TYPE_CHECKING:
    from ort_ep_cuda.lowering.program import Launch

ALIGNMENT_NBYTES = 256  # of every buffer's start; what lies behind it is aligned by its offset
NormalizationKind = Literal["layer", "rms", "instance"]
ActivationKind = Literal["relu", "clip", "gelu", "gelu_tanh", "sigmoid", "tanh"]


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each element: ``gelu`` by the error function, ``gelu_tanh`` near it, ``clip`` by bounds."""

    kind: ActivationKind
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What a library does behind a product: ``activation(product + beta * addend + bias)``.

    ``bias`` is a dense vector with one element for each column of a product or channel of a convolution, ``addend`` a
    tensor of the result's shape and strides. Both have the result's element type.
    """

    bias: TensorView | None = None
    addend: TensorView | None = None
    beta: float = 1.0
    activation: Activation | None = None

    @property
    def operands(self) -> tuple[TensorView, ...]:
        """The tensors that are read, the bias first."""
        return tuple(view for view in (self.bias, self.addend) if view is not None)

    def layout(self) -> Epilogue:
        """Return the epilogue without places."""
        bias, addend = (None if view is None else unplaced(view) for view in (self.bias, self.addend))
        return replace(self, bias=bias, addend=addend)

    def __str__(self) -> str:
        parts = [] if self.bias is None else [f" + bias {shown(self.bias)}"]
        parts += [] if self.addend is None else [f" + {self.beta} * {shown(self.addend)}"]
        bounds = self.activation is not None and self.activation.kind == "clip"
        kind = "" if self.activation is None else f" then {self.activation.kind}"
        return "".join(parts) + kind + (f" {self.activation.low}..{self.activation.high}" if bounds else "")  # type: ignore[union-attr]  # bounds are those of an activation


NO_EPILOGUE = Epilogue()


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """What all library calls have: tensors that are read, in order, and one that is written."""

    out: TensorView

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """The tensors that are read."""
        raise NotImplementedError

    @property
    def operands(self) -> tuple[TensorView, ...]:
        """The tensors whose addresses the call is given: inputs, then the result."""
        return (*self.inputs, self.out)

    @property
    def reads(self) -> tuple[int, ...]:
        """Buffers that are read."""
        return tuple(view.buffer for view in self.inputs)

    @property
    def writes(self) -> tuple[int, ...]:
        """Buffers that are written."""
        return (self.out.buffer,)

    def placed(self, out: TensorView) -> Self:
        """Return the step with its result in a place."""
        return replace(self, out=out)


@dataclass(frozen=True, slots=True)
class MatrixProduct(LibraryStep):
    """``out = alpha * a @ b`` for each of a batch, and its epilogue.

    Views have the shapes ``[batch, rows, inner]``, ``[batch, inner, columns]`` and ``[batch, rows, columns]``; one of
    the last two axes of ``a`` and ``b`` has stride 1, ``out`` is dense.
    """

    a: TensorView
    b: TensorView
    alpha: float = 1.0
    epilogue: Epilogue = NO_EPILOGUE

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """Factors, then what the epilogue reads."""
        return (self.a, self.b, *self.epilogue.operands)

    def layout(self) -> MatrixProduct:
        """Return the step without places."""
        out, a, b = map(unplaced, (self.out, self.a, self.b))
        return replace(self, out=out, a=a, b=b, epilogue=self.epilogue.layout())

    def __str__(self) -> str:
        return f"product %{self.out.buffer} = {self.alpha} * {shown(self.a)} @ {shown(self.b)}{self.epilogue}"


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution's window moves over each axis of space."""

    pads_before: Shape
    pads_after: Shape
    strides: Shape
    dilations: Shape

    def __str__(self) -> str:
        return f"pads {self.pads_before} {self.pads_after} strides {self.strides} dilations {self.dilations}"


@dataclass(frozen=True, slots=True)
class Convolution(LibraryStep):
    """A convolution of ``[N, C, ...]`` by ``[M, C / groups, ...]`` to ``[N, M, ...]``, and its epilogue.

    All three lie without gaps, in row-major order or with their channels last. A transposed convolution is what gives
    the gradient of a convolution from ``out`` to ``x``: its weights are ``[C, M / groups, ...]``, and its padding is
    cut off the result.
    """

    x: TensorView
    weights: TensorView
    window: Window
    groups: int = 1
    is_transposed: bool = False
    epilogue: Epilogue = NO_EPILOGUE

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """Image, weights, then what the epilogue reads."""
        return (self.x, self.weights, *self.epilogue.operands)

    def layout(self) -> Convolution:
        """Return the step without places."""
        out, x, weights = map(unplaced, (self.out, self.x, self.weights))
        return replace(self, out=out, x=x, weights=weights, epilogue=self.epilogue.layout())

    def __str__(self) -> str:
        kind = "transposed convolution" if self.is_transposed else "convolution"
        factors = f"{shown(self.x)} * {shown(self.weights)} {self.window} groups {self.groups}"
        return f"{kind} %{self.out.buffer} = {factors}{self.epilogue}"


@dataclass(frozen=True, slots=True)
class ScaledAttention(LibraryStep):
    """``softmax(scale * q k' + bias) v`` in one call that never stores the scores.

    Views have four axes, ``[batch, heads, rows, size]``, the last of stride 1; keys and values may have fewer heads,
    each read by as many heads of queries as there are times more. ``bias`` broadcasts over batch and heads. With
    ``is_causal`` a query reads the keys up to its own place, counted from the first.
    """

    q: TensorView
    k: TensorView
    v: TensorView
    scale: float
    bias: TensorView | None = None
    is_causal: bool = False

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """Queries, keys, values, and the bias where there is one."""
        return (self.q, self.k, self.v, *(() if self.bias is None else (self.bias,)))

    def layout(self) -> ScaledAttention:
        """Return the step without places."""
        out, q, k, v = map(unplaced, (self.out, self.q, self.k, self.v))
        return replace(self, out=out, q=q, k=k, v=v, bias=None if self.bias is None else unplaced(self.bias))

    def __str__(self) -> str:
        bias = "" if self.bias is None else f" bias {shown(self.bias)}"
        factors = ", ".join(shown(view) for view in (self.q, self.k, self.v))
        kind = "causal attention" if self.is_causal else "attention"
        return f"{kind} %{self.out.buffer}:{list(self.out.strides)} = {factors} scale {self.scale}{bias}"


@dataclass(frozen=True, slots=True)
class Normalization(LibraryStep):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias``; ``rms`` without mean and bias.

    ``layer`` and ``rms`` normalize rows of ``[rows, columns]``, with a factor for each column; ``instance`` each
    channel of ``[N, C, ...]``, with one for each channel. All views are dense, of one element type. ``own`` is the
    generated kernel that does the same: whichever is faster runs.
    """

    x: TensorView
    scale: TensorView
    bias: TensorView | None
    epsilon: float
    kind: NormalizationKind
    own: Launch | None = None

    @property
    def inputs(self) -> tuple[TensorView, ...]:
        """What is normalized, the factors, and the summands where there are any."""
        return (self.x, self.scale, *(() if self.bias is None else (self.bias,)))

    def layout(self) -> Normalization:
        """Return the step without places, and without its kernel."""
        out, x, scale = map(unplaced, (self.out, self.x, self.scale))
        bias = None if self.bias is None else unplaced(self.bias)
        return replace(self, out=out, x=x, scale=scale, bias=bias, own=None)

    def __str__(self) -> str:
        bias = "" if self.bias is None else f" bias {shown(self.bias)}"
        return (
            f"{self.kind} normalization %{self.out.buffer} = {shown(self.x)} scale {shown(self.scale)}{bias}"
            f" epsilon {self.epsilon}"
        )


AnyLibraryStep = MatrixProduct | Convolution | ScaledAttention | Normalization


def unplaced(view: TensorView) -> TensorView:
    """Return a view as part of a key: buffers left out, of its offset only how it is aligned."""
    item = view.dtype.numpy.itemsize
    aligned = math.gcd(view.offset * item, ALIGNMENT_NBYTES)
    return replace(view, buffer=0, offset=aligned // item % (ALIGNMENT_NBYTES // item))


def shown(view: TensorView) -> str:
    """Return a view as text."""
    return f"%{view.buffer}{list(view.shape)}:{list(view.strides)}"
