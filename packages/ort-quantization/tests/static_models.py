"""Small float models with every operator that is quantized by calibrated ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from float_models import Builder, conv, conv1d, embedding, gemm, matmul, matmul_of_values, tied_gemms
from onnx import TensorProto


def residual_network():
    b = Builder()
    stem = b.node("Conv", ["x", b.weight("w0", 8, 3, 3, 3), b.weight("b0", 8)], "c0", pads=[1, 1, 1, 1])
    stem = b.node("Relu", [stem], "r0")
    pooled = b.node("MaxPool", [stem], "p0", kernel_shape=[2, 2], strides=[2, 2])
    deep = b.node("Conv", [pooled, b.weight("w1", 8, 1, 3, 3), b.weight("b1", 8)], "c1", pads=[1, 1, 1, 1], group=8)
    limits = [b.constant("zero", np.float32(0)), b.constant("six", np.float32(6))]
    deep = b.node("Clip", [deep, *limits], "k1")
    deep = b.node("Conv", [deep, b.weight("w2", 8, 8, 1, 1)], "c2")
    joined = b.node("Add", [deep, pooled], "a0")
    mean = b.node("GlobalAveragePool", [joined], "g0")
    flat = b.node("Flatten", [mean], "f0")
    scores = b.node("Gemm", [flat, b.weight("w3", 8, 5), b.weight("b3", 5)], "s0")
    b.node("Softmax", [scores], "y")
    b.node("ArgMax", [scores], "label", axis=1)
    return b.model({"x": (1, 3, 10, 10)}, ["y", "label"], {"label": TensorProto.INT64})


def branches_and_joins():
    b = Builder()
    parts = b.node("Split", ["x", b.constant("sizes", [4, 4], np.int64)], ["s0", "s1"], axis=1)
    left = b.node("LeakyRelu", [parts], "l", alpha=0.1)
    right = b.node("Sigmoid", ["s1"], "r")
    joined = b.node("Concat", [left, right, b.weight("k", 1, 2, 6, 6)], "c", axis=1)
    scaled = b.node("Mul", [joined, b.weight("m", 1, 10, 1, 1)], "u")
    padded = b.node("Pad", [scaled, b.constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64)], "p")
    pads = [b.constant("pads2", [0, 0, 0, 0, 0, 0, 1, 1], np.int64), b.constant("fill", np.float32(0.7))]
    padded = b.node("Pad", [padded, *pads], "q")
    pooled = b.node("AveragePool", [padded], "v", kernel_shape=[3, 3], strides=[2, 2])
    larger = b.node("Resize", [pooled, "", b.constant("sc", [1.0, 1.0, 2.0, 2.0], np.float32)], "z", mode="nearest")
    turned = b.node("Transpose", [larger], "t", perm=[0, 2, 3, 1])
    b.node("Reshape", [turned, b.constant("shape", [1, -1], np.int64)], "y")
    return b.model({"x": (1, 8, 6, 6)}, ["y"])


def transformer_block():
    b = Builder()
    ids = b.node("Gather", [b.weight("table", 20, 12), "ids"], "e")
    norm = b.node("LayerNormalization", [ids, b.constant("g", np.ones(12, "f")), b.weight("bn", 12)], "n")
    query = b.node("MatMul", [norm, b.weight("wq", 12, 12)], "q")
    query = b.node("Add", [query, b.weight("bq", 12)], "qb")
    key = b.node("MatMul", [norm, b.weight("wk", 12, 12)], "k")
    key = b.node("Transpose", [key], "kt", perm=[0, 2, 1])
    scores = b.node("MatMul", [query, key], "qk")
    scores = b.node("Softmax", [scores], "p", axis=-1)
    mixed = b.node("MatMul", [scores, b.node("MatMul", [norm, b.weight("wv", 12, 12)], "v")], "o")
    b.node("Add", [mixed, ids], "y")
    return b.model({"ids": (2, 5)}, ["y"], {"ids": TensorProto.INT64})


def normalizations():
    b = Builder()
    hidden = b.node("InstanceNormalization", ["x", b.weight("g", 4), b.weight("h", 4)], "i")
    stats = [b.constant("mean", np.zeros(4, "f")), b.constant("var", np.ones(4, "f"))]
    hidden = b.node("BatchNormalization", [hidden, b.weight("s", 4), b.weight("t", 4), *stats], "n")
    hidden = b.node("ConvTranspose", [hidden, b.weight("w", 4, 3, 2, 2), b.weight("b", 3)], "c", strides=[2, 2])
    hidden = b.node("Relu", [hidden], "r")
    ends = [b.constant(name, value, np.int64) for name, value in (("st", [1]), ("en", [5]), ("ax", [2]))]
    hidden = b.node("Slice", [hidden, *ends], "sl")
    hidden = b.node("Squeeze", [hidden, b.constant("sq", [0], np.int64)], "q")
    hidden = b.node("Unsqueeze", [hidden, b.constant("us", [0], np.int64)], "u")
    flag = b.node("Greater", [hidden, b.constant("half", np.float32(0.1))], "m")
    b.node("Where", [flag, hidden, b.constant("other", np.float32(-0.3))], "y")
    return b.model({"x": (1, 4, 5, 5)}, ["y"])


def shared_bias():
    b = Builder()
    bias = b.weight("b", 6)
    first = b.node("Gemm", ["x", b.weight("w", 6, 6), bias], "h")
    second = b.node("Gemm", [first, b.weight("v", 6, 6), bias], "g")
    b.node("Gemm", ["x", b.weight("u", 6, 6), b.weight("c", 6)], "k")
    b.node("Add", [second, "k"], "y")
    return b.model({"x": (3, 6)}, ["y"])


def many_readers():
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    left = b.node("Relu", [hidden], "l")
    right = b.node("Sigmoid", [hidden], "r")
    b.node("Mul", [left, right], "m")
    b.node("Add", ["m", hidden], "y")
    return b.model({"x": (1, 4, 3, 3)}, ["y", "h"])


def large_bias():
    """Tiny weights and a large bias: at the product of the scales the bias does not fit 32 bits."""
    b = Builder()
    w = b.constant("w", (np.random.default_rng(0).normal(size=(4, 3, 1, 1)) * 1e-7).astype("f"))
    b.node("Conv", ["x", w, b.constant("b", np.array([50, -90, 1, 0], "f"))], "y")
    return b.model({"x": (1, 3, 4, 4)}, ["y"])


STATIC: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual network": residual_network,
    "branches and joins": branches_and_joins,
    "transformer block": transformer_block,
    "normalizations": normalizations,
    "shared bias": shared_bias,
    "many readers": many_readers,
    "large bias": large_bias,
    "matmul": matmul,
    "values times values": matmul_of_values,
    "gemm": lambda: gemm(False),
    "tied gemms": tied_gemms,
    "conv": conv,
    "conv1d": conv1d,
    "embedding": embedding,
}
