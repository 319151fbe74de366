"""Small seeded networks of the kinds that people run: each a function from an element type to a model and feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from ort_conformance.suites.model_text import seeded
from ort_conformance.suites.model_writer import INT64, ModelWriter

Network = tuple[onnx.ModelProto, Mapping[str, np.ndarray]]


def _numbers(name: str, *shape: int) -> np.ndarray:
    return seeded("network", name, shape).uniform(-1.0, 1.0, shape).astype(np.float32)


def perceptron(dtype: str = "float32", batch: int = 3) -> Network:
    """Three dense layers, any number of rows."""
    w = ModelWriter("perceptron", dtype=dtype)
    value = w.input("x", ["N", 24])
    for size, following in ((24, 40), (40, 40), (40, 7)):
        value = w.op("Gemm", value, w.weight(size, following), w.weight(following))
        value = w.op("Relu", value) if following != 7 else w.op("Softmax", value, axis=-1)
    return w.model({value: "y"}), {"x": _numbers("perceptron", batch, 24).astype(dtype)}


def _conv(
    w: ModelWriter, x: str, channels: tuple[int, int], *, kernel: int = 3, stride: int = 1, groups: int = 1
) -> str:
    before, after = channels
    return w.op(
        "Conv", x, w.weight(after, before // groups, kernel, kernel), w.weight(after, scale=0.1),
        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups,
    )  # fmt: skip


def _normalized(w: ModelWriter, x: str, channels: int, dtype: str) -> str:
    one = w.constant(np.linspace(0.5, 1.5, channels).astype(dtype))
    return w.op("BatchNormalization", x, one, w.weight(channels, scale=0.1), w.weight(channels, scale=0.1), one)


def residual_network(dtype: str = "float32", batch: int = 2) -> Network:
    """Convolutions, batch normalization, residual sums, pooling: the ResNet kind."""
    w = ModelWriter("residual_network", dtype=dtype)
    value = w.op("Relu", _normalized(w, _conv(w, w.input("image", ["N", 3, 17, 17]), (3, 8), stride=2), 8, dtype))
    value = w.op("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels in ((8, 8), (8, 12)):
        inner = w.op("Relu", _normalized(w, _conv(w, value, channels), channels[1], dtype))
        inner = _normalized(w, _conv(w, inner, (channels[1], channels[1])), channels[1], dtype)
        shortcut = value if channels[0] == channels[1] else _conv(w, value, channels, kernel=1)
        value = w.op("Relu", w.op("Add", inner, shortcut))
    value = w.op("Flatten", w.op("GlobalAveragePool", value))
    value = w.op("Gemm", value, w.weight(5, 12), w.weight(5), transB=1)
    return w.model({value: "logits"}), {"image": _numbers("residual", batch, 3, 17, 17).astype(dtype)}


def mobile_network(dtype: str = "float32", batch: int = 1) -> Network:
    """Depthwise convolutions, squeeze and excitation, hard swish: the MobileNet and EfficientNet kind."""
    w = ModelWriter("mobile_network", dtype=dtype)
    value = w.op("HardSwish", _conv(w, w.input("image", ["N", 3, 16, 16]), (3, 8), stride=2))
    for _ in range(2):
        wide = w.op("Clip", _conv(w, value, (8, 24), kernel=1), w.constant(0.0), w.constant(6.0))
        deep = w.op("HardSwish", _conv(w, wide, (24, 24), kernel=5, groups=24))
        gate = w.op("Relu", _conv(w, w.op("GlobalAveragePool", deep), (24, 6), kernel=1))
        gate = w.op("HardSigmoid", _conv(w, gate, (6, 24), kernel=1), alpha=1 / 6)
        value = w.op("Add", value, _conv(w, w.op("Mul", deep, gate), (24, 8), kernel=1))
    value = w.op("ReduceMean", value, w.constant([2, 3]), keepdims=0)
    return w.model({value: "features"}), {"image": _numbers("mobile", batch, 3, 16, 16).astype(dtype)}


def _dense(w: ModelWriter, x: str, before: int, after: int) -> str:
    return w.op("Add", w.op("MatMul", x, w.weight(before, after)), w.weight(after, scale=0.1))


def _layer_norm(w: ModelWriter, x: str, size: int, dtype: str) -> str:
    scale = w.constant(np.linspace(0.8, 1.2, size).astype(dtype))
    return w.op("LayerNormalization", x, scale, w.weight(size, scale=0.1), axis=-1)


def _heads(w: ModelWriter, x: str, count: int, size: int, permutation: list[int]) -> str:
    return w.op("Transpose", w.op("Reshape", x, w.constant([0, 0, count, size])), perm=permutation)


def _attention(w: ModelWriter, x: str, mask: str | None, size: int, heads: int) -> str:
    per_head = size // heads
    queries = _heads(w, _dense(w, x, size, size), heads, per_head, [0, 2, 1, 3])
    keys = _heads(w, _dense(w, x, size, size), heads, per_head, [0, 2, 3, 1])
    values = _heads(w, _dense(w, x, size, size), heads, per_head, [0, 2, 1, 3])
    scores = w.op("Mul", w.op("MatMul", queries, keys), w.constant(float(1 / np.sqrt(per_head))))
    scores = scores if mask is None else w.op("Add", scores, mask)
    mixed = w.op("MatMul", w.op("Softmax", scores, axis=-1), values)
    joined = w.op("Reshape", w.op("Transpose", mixed, perm=[0, 2, 1, 3]), w.constant([0, 0, size]))
    return _dense(w, joined, size, size)


def encoder(dtype: str = "float32", length: int = 9) -> Network:
    """Embeddings, masked attention, GELU, layer normalization: the BERT kind, any batch and length."""
    w = ModelWriter("encoder", dtype=dtype)
    tokens, mask = w.input("tokens", ["N", "S"], INT64), w.input("mask", ["N", 1, 1, "S"])
    value = _layer_norm(w, w.op("Gather", w.weight(50, 16, scale=0.5), tokens), 16, dtype)
    for _ in range(2):
        value = _layer_norm(w, w.op("Add", value, _attention(w, value, mask, 16, 4)), 16, dtype)
        inner = _dense(w, w.op("Gelu", _dense(w, value, 16, 32)), 32, 16)
        value = _layer_norm(w, w.op("Add", value, inner), 16, dtype)
    pooled = w.op("Tanh", _dense(w, w.op("Gather", value, w.constant(np.array(0, np.int64)), axis=1), 16, 16))
    tokens_fed = seeded("tokens", length).integers(0, 50, (2, length))
    masked = np.where(np.arange(length) < length - 2, 0.0, -1e4).astype(dtype)
    feeds = {"tokens": tokens_fed, "mask": np.broadcast_to(masked, (2, 1, 1, length)).copy()}
    return w.model({value: "hidden", pooled: "pooled"}), feeds


def decoder_step(dtype: str = "float32", past: int = 5) -> Network:
    """One step of a decoder whose past grows: keys and values come in, and go out with one more row."""
    w = ModelWriter("decoder_step", dtype=dtype)
    x = w.input("x", [1, 1, 16])
    past_keys, past_values = w.input("past_keys", [1, 4, "P", 4]), w.input("past_values", [1, 4, "P", 4])
    queries = _heads(w, _dense(w, x, 16, 16), 4, 4, [0, 2, 1, 3])
    keys = w.op("Concat", past_keys, _heads(w, _dense(w, x, 16, 16), 4, 4, [0, 2, 1, 3]), axis=2)
    values = w.op("Concat", past_values, _heads(w, _dense(w, x, 16, 16), 4, 4, [0, 2, 1, 3]), axis=2)
    scores = w.op("MatMul", queries, w.op("Transpose", keys, perm=[0, 1, 3, 2]))
    mixed = w.op("MatMul", w.op("Softmax", w.op("Mul", scores, w.constant(0.5)), axis=-1), values)
    joined = w.op("Reshape", w.op("Transpose", mixed, perm=[0, 2, 1, 3]), w.constant([1, 1, 16]))
    logits = _dense(w, w.op("Add", x, joined), 16, 20)
    feeds = {
        "x": _numbers("decoder", 1, 1, 16).astype(dtype),
        "past_keys": _numbers("keys", 1, 4, past, 4).astype(dtype),
        "past_values": _numbers("values", 1, 4, past, 4).astype(dtype),
    }
    return w.model({logits: "logits", keys: "keys", values: "values"}), feeds


def recurrent_tagger(dtype: str = "float32", length: int = 6) -> Network:
    """A bidirectional LSTM under a GRU."""
    w = ModelWriter("recurrent_tagger", dtype=dtype)
    x = w.input("x", ["S", 2, 5])
    both = w.op(
        "LSTM", x, w.weight(2, 24, 5, scale=0.3), w.weight(2, 24, 6, scale=0.3), w.weight(2, 48, scale=0.1),
        hidden_size=6, direction="bidirectional",
    )  # fmt: skip
    joined = w.op("Reshape", w.op("Transpose", both, perm=[0, 2, 1, 3]), w.constant([0, 2, 12]))
    gates, recurrence = w.weight(1, 12, 12, scale=0.3), w.weight(1, 12, 4, scale=0.3)
    state = w.op("GRU", joined, gates, recurrence, hidden_size=4, linear_before_reset=1)
    tags = w.op("ArgMax", w.op("Squeeze", state, w.constant([1])), axis=-1)
    return w.model({state: "state", tags: "tags"}), {"x": _numbers("recurrent", length, 2, 5).astype(dtype)}


def segmentation_network(dtype: str = "float32", batch: int = 1) -> Network:
    """Down, up again by a transposed convolution and a resize, with a skip: the U-Net kind."""
    w = ModelWriter("segmentation_network", dtype=dtype)
    image = w.input("image", ["N", 2, 12, 12])
    high = w.op("Relu", _conv(w, image, (2, 6)))
    low = w.op("Relu", _conv(w, w.op("AveragePool", high, kernel_shape=[2, 2], strides=[2, 2]), (6, 8)))
    up = w.op("ConvTranspose", low, w.weight(8, 6, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    scales = w.constant(np.array([1, 1, 2, 2], np.float32))
    resized = w.op(
        "Resize", low, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    value = _conv(w, w.op("Concat", up, high, resized, axis=1), (20, 3), kernel=1)
    feeds = {"image": _numbers("unet", batch, 2, 12, 12).astype(dtype)}
    return w.model({w.op("Softmax", value, axis=1): "classes"}), feeds


def quantized_network(dtype: str = "float32", batch: int = 2) -> Network:
    """Dense layers between QuantizeLinear and DequantizeLinear, with 8-bit weights."""
    w = ModelWriter("quantized_network", dtype=dtype)
    value = w.input("x", ["N", 16])
    zero, zero8 = w.constant(np.array(128, np.uint8)), w.constant(np.array(0, np.int8))
    scale, weight_scale = w.constant(1 / 64), w.constant(1 / 128)
    for before, after in ((16, 12), (12, 6)):
        codes = seeded("codes", before, after).integers(-100, 100, (before, after)).astype(np.int8)
        weights = w.op("DequantizeLinear", w.constant(codes), weight_scale, zero8)
        held = w.op("DequantizeLinear", w.op("QuantizeLinear", value, scale, zero), scale, zero)
        value = w.op("Relu", w.op("MatMul", held, weights))
    return w.model({value: "y"}), {"x": _numbers("quantized", batch, 16).astype(dtype)}


def detector(dtype: str = "float32", count: int = 20) -> Network:
    """Scores, TopK and non-maximum suppression: sizes that depend on data."""
    w = ModelWriter("detector", dtype=dtype)
    features = w.input("features", [count, 8])
    scores = w.op("Sigmoid", _dense(w, features, 8, 1))
    corners = w.op("Sigmoid", _dense(w, features, 8, 2))
    sizes = w.op("Mul", w.op("Sigmoid", _dense(w, features, 8, 2)), w.constant(0.3))
    boxes = w.op("Concat", corners, w.op("Add", corners, sizes), axis=1)
    by_class = w.op("Unsqueeze", w.op("Transpose", scores, perm=[1, 0]), w.constant([0]))
    limits = [
        w.constant(np.array([value], kind)) for value, kind in ((8, np.int64), (0.4, np.float32), (0.3, np.float32))
    ]
    chosen = w.op("NonMaxSuppression", w.op("Unsqueeze", boxes, w.constant([0])), by_class, *limits)
    column = w.op("Slice", chosen, w.constant([2]), w.constant([3]), w.constant([1]))
    kept = w.op("Gather", boxes, w.op("Squeeze", column, w.constant([1])))
    return w.model({kept: "boxes", chosen: "indices"}), {"features": _numbers("detector", count, 8).astype(dtype)}


NETWORKS: Mapping[str, tuple[Callable[..., Network], int, int]] = {
    "perceptron": (perceptron, 3, 65),
    "residual_network": (residual_network, 2, 1),
    "mobile_network": (mobile_network, 1, 3),
    "encoder": (encoder, 9, 14),
    "decoder_step": (decoder_step, 5, 0),
    "recurrent_tagger": (recurrent_tagger, 6, 1),
    "segmentation_network": (segmentation_network, 1, 2),
    "quantized_network": (quantized_network, 2, 5),
    "detector": (detector, 20, 20),
}
"""Builders, each with two values of its free size (batch, length, past)."""
