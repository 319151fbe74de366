"""Moving, selecting and shaping tensors: com.microsoft's own forms of standard operators."""

from __future__ import annotations

from ort_core.ir.types import DataType
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.writer import BodyWriter, NoBody

_TRILU, _WRAP = 14, 19


def expand_dims(w: BodyWriter) -> Results:
    """Insert an axis of length 1 at a position that is an input."""
    return [w.op("Unsqueeze", w.input(0), w.op("Reshape", w.cast(w.input(1), DataType.INT64), w.ints(1)))]


def gather_nd(w: BodyWriter) -> Results:
    """Slices of data at coordinates along the last axis of indices."""
    return [w.op("GatherND", w.input(0), w.cast(w.input(1), DataType.INT64))]


def arithmetic_range(w: BodyWriter) -> Results:
    """start, start + delta, ... up to but without limit."""
    step = w.scalar(w.input(2), 2) if w.has(2) else w.constant(1, w.dtype(0))
    return [w.op("Range", w.scalar(w.input(0), 0), w.scalar(w.input(1), 1), step)]


def pad(w: BodyWriter) -> Results:
    """Pad of ai.onnx."""
    mode = w.string_of("mode", "constant")
    if mode == "wrap" and w.opset < _WRAP:
        raise NoBody(f"Pad knows wrap from opset {_WRAP} on")
    pads = w.op("Reshape", w.input(1), w.ints(-1))
    fill = (w.scalar(w.input(2), 2),) if w.has(2) else ()
    return [w.op("Pad", w.input(0), pads, *fill, mode=mode)]


def trilu(w: BodyWriter) -> Results:
    """Trilu of ai.onnx."""
    if w.opset < _TRILU:
        raise NoBody(f"ai.onnx has Trilu from opset {_TRILU} on")
    diagonal = (w.scalar(w.input(1), 1),) if w.has(1) else ()
    return [w.op("Trilu", w.input(0), *diagonal, upper=w.int_of("upper", 1))]


def pairwise_distance(w: BodyWriter) -> Results:
    """Distances between the rows of A and the rows of B, Euclidean or its square, as sums of squared differences."""
    difference = w.op("Sub", w.unsqueeze(w.input(0), 1), w.unsqueeze(w.input(1), 0))
    squares = w.reduce("ReduceSum", w.op("Mul", difference, difference), [2], keepdims=0)
    return [w.op("Sqrt", squares) if w.string_of("metric") == "euclidean" else squares]


def sample_op(w: BodyWriter) -> Results:
    """Y = X."""
    return [w.op("Identity", w.input(0))]


def complex_mul(w: BodyWriter) -> Results:
    """Products of complex numbers, whose parts lie on the last axis."""
    return _complex_product(w, 1.0)


def complex_mul_conj(w: BodyWriter) -> Results:
    """Products of complex numbers and the conjugates of others."""
    return _complex_product(w, -1.0)


def _complex_product(w: BodyWriter, sign: float) -> Results:
    (a, b), (c, d) = ((w.slice(x, -1, 0, 1), w.slice(x, -1, 1, 2)) for x in (w.wide(0), w.wide(1)))
    if sign < 0:
        d = w.op("Neg", d)
    real = w.op("Sub", w.op("Mul", a, c), w.op("Mul", b, d))
    imaginary = w.op("Add", w.op("Mul", a, d), w.op("Mul", b, c))
    return [w.narrow(w.joined(real, imaginary, axis=-1))]


def torch_embedding(w: BodyWriter) -> Results:
    """Rows of a table."""
    return [w.op("Gather", w.input(0), w.input(1), axis=0)]


def bias_dropout(w: BodyWriter) -> Results:
    """Y = data + bias + residual, where nothing is dropped."""
    if w.has(4):
        raise NoBody("its training mode is an input, and random numbers are not a composition")
    data = w.wide(0)
    total = w.narrow(w.sum(data, w.wide(1), w.find_wide(2)))
    mask = w.op("Expand", w.constant(True, DataType.BOOL), w.op("Shape", w.input(0))) if w.wants(1) else None
    return [total, mask]
