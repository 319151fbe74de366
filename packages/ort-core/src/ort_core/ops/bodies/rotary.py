"""Rotary position embeddings of com.microsoft."""

from __future__ import annotations

import numpy as np

from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.writer import BodyWriter, NoBody


def rotate(w: BodyWriter, x: Value, cos: Value, sin: Value, pairs: int, *, interleaved: bool, whole: bool) -> Value:
    """Rotate pairs of the last of four axes by angles whose cosines and sines broadcast to (..., pairs).

    Pairs are (2i, 2i + 1) when interleaved, else (i, i + pairs); what lies beyond 2 * pairs (not ``whole``) is kept.
    """
    end = 2 * pairs
    if interleaved:
        real, imaginary = w.slice(x, 3, 0, end, 2), w.slice(x, 3, 1, end, 2)
    else:
        real, imaginary = w.slice(x, 3, 0, pairs), w.slice(x, 3, pairs, end)
    turned = [
        w.op("Sub", w.op("Mul", real, cos), w.op("Mul", imaginary, sin)),
        w.op("Add", w.op("Mul", real, sin), w.op("Mul", imaginary, cos)),
    ]
    if interleaved:
        rotated = w.reshape(w.joined(*(w.unsqueeze(each, 4) for each in turned), axis=4), 0, 0, 0, end)
    else:
        rotated = w.joined(*turned, axis=3)
    return rotated if whole else w.joined(rotated, w.slice(x, 3, end), axis=3)


def pairs_of(w: BodyWriter, index: int) -> int:
    """Return the number of pairs that an input of cosines has."""
    shape = w.shape(index)
    found = shape[-1] if shape else None
    if not isinstance(found, int):
        raise NoBody("the width of its table of cosines is not known")
    return found


def angles(w: BodyWriter, cos: int, sin: int, places: Value) -> tuple[Value, Value]:
    """Return the cosines and sines of positions, each (..., pairs), from tables of (rows, pairs).

    A position outside of the tables, which kernels refuse, reads none of their rows: its cosines are NaN.
    """
    dtype = DataType.INT64
    rows = (w.shape(cos) or (None,))[0]
    end = w.constant(rows, dtype) if isinstance(rows, int) else w.squeeze(w.size(w.input(cos), 0), 0)
    none, one = w.constant(0, dtype), w.constant(1, dtype)
    is_inside = w.op("And", w.op("GreaterOrEqual", places, none), w.op("Less", places, end))
    held = w.op("Min", w.op("Max", places, none), w.op("Sub", end, one))
    found = w.op("Gather", w.wide(cos), held, axis=0)
    nan = w.constant(np.nan, w.computing(cos))
    return w.op("Where", w.unsqueeze(is_inside, -1), found, nan), w.op("Gather", w.wide(sin), held, axis=0)


def rotary_embedding(w: BodyWriter) -> Results:
    """Rotate each head by its token's position."""
    pairs, rank = pairs_of(w, 2), w.rank(0)
    x, shape = w.wide(0), w.shape(0)
    last = shape[-1] if shape else None
    if not isinstance(last, int):
        raise NoBody("the width of its input is not known")
    if rank == 4:
        heads, width = x, last
    else:
        count = w.int_of("num_heads")
        width = last // count if count else 2 * pairs
        heads = w.transpose(w.reshape(x, 0, 0, last // width, width), 0, 2, 1, 3)
    places = _positions(w, heads)
    cos, sin = (w.unsqueeze(each, 1) for each in angles(w, 2, 3, places))
    turned = rotate(w, heads, cos, sin, pairs, interleaved=bool(w.int_of("interleaved")), whole=2 * pairs == width)
    return [w.narrow(turned if rank == 4 else w.reshape(w.transpose(turned, 0, 2, 1, 3), 0, 0, last))]


def _positions(w: BodyWriter, heads: Value) -> Value:
    """Return (batch or 1, sequence) positions, from a table or from a single start."""
    given = w.input(1)
    if w.rank(1) == 2:
        return given
    shape = w.shape(1)
    if shape not in ((), (1,)):
        raise NoBody("the shape of its positions is not known")
    start = w.reshape(w.cast(given, DataType.INT64), 1)
    length = w.size(heads, 2)
    return w.unsqueeze(w.op("Add", w.range(length), start), 0)
