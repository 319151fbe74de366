"""The summed and normalized embeddings of BERT."""

from __future__ import annotations

from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.normalization import layer_norm
from ort_core.ops.bodies.writer import BodyWriter


def embed_layer_normalization(w: BodyWriter) -> Results:
    """LayerNorm(word + position + segment embedding); also the number of unmasked tokens, and the sum."""
    ids = w.input(0)
    words = w.op("Gather", w.input(2), ids, axis=0)
    segments = w.op("Gather", w.input(4), w.input(1), axis=0) if w.has(1) and w.has(4) else None
    parts = [words, _positions(w, ids), segments]
    widened = [p if p is None or w.computing(2) is w.dtype(2) else w.cast(p, w.computing(2)) for p in parts]
    total = w.sum(*widened)
    normal = layer_norm(w, total, w.wide(5), w.wide(6), w.float_of("epsilon"))[0]
    counts = _counts(w, ids) if w.wants(1) else None
    return [w.narrow(normal, 2), counts, w.narrow(total, 2) if w.wants(2) else None]


def _positions(w: BodyWriter, ids: Value) -> Value:
    if w.has(8):
        return w.op("Gather", w.input(3), w.input(8), axis=0)
    return w.unsqueeze(w.slice(w.input(3), 0, 0, w.size(ids, 1)), 0)


def _counts(w: BodyWriter, ids: Value) -> Value:
    if not w.has(7):
        return w.op("Expand", w.constant(0, DataType.INT32), w.size(ids, 0))
    ones = w.op("Equal", w.input(7), w.constant(1, DataType.INT32))
    return w.reduce("ReduceSum", w.cast(ones, DataType.INT32), [1], keepdims=0)
