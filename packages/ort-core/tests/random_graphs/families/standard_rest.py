"""Standard operators that few models have: signals, regions, losses, texts, newer ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family()
def transform(g: GraphWriter) -> Value:
    if g.opset < 20:
        raise Refused("its axis is an attribute before")
    value = g.pick(et.F32, et.F64, least=1, most=3, filled=True)
    signal = g.node("Unsqueeze", [value, g.constant(fixed([-1]))])
    if signal.rank < 3:
        signal = g.node("Unsqueeze", [signal, g.constant(fixed([0]))])
    axis = g.constant(np.asarray(g.choice((-2, 1)), np.int64))
    return g.node("DFT", [signal, None, axis], onesided=g.choice((0, 1)))


@family()
def window_of_signal(g: GraphWriter) -> Value:
    size = g.constant(np.asarray(g.choice((1, 5, 16)), np.int64))
    op_type = g.choice(("HannWindow", "HammingWindow", "BlackmanWindow"))
    return g.node(op_type, [size], periodic=g.choice((0, 1)), output_datatype=1)


@family()
def regions(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=4, filled=True)
    count, batch = g.choice((1, 3)), value.size(0)
    corners = g.numbers.uniform(0, 2, (count, 2))
    boxes = g.constant(np.concatenate([corners, corners + g.numbers.uniform(1, 4, (count, 2))], 1), et.F32)
    owners = g.constant(g.numbers.integers(0, batch, count).astype(np.int64))
    given: dict[str, Any] = {
        "output_height": g.choice((1, 2)), "output_width": 2, "sampling_ratio": g.choice((0, 1, 2)),
    }  # fmt: skip
    if g.opset >= 16:
        given["coordinate_transformation_mode"] = g.choice(("half_pixel", "output_half_pixel"))
    return g.node("RoiAlign", [value, boxes, owners], mode=g.choice(("avg", "avg", "max")), **given)


@family()
def loss(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=2, filled=True)
    rows, classes = value.sizes(0, 1)
    labels = g.constant(g.numbers.integers(0, classes, rows).astype(np.int64))
    how = g.choice(("none", "mean", "sum"))
    if g.chance(0.5):
        return g.node("SoftmaxCrossEntropyLoss", [value, labels], reduction=how)
    return g.node("NegativeLogLikelihoodLoss", [value, labels], reduction=how)


@family()
def columns_to_image(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=3, filled=True)
    size, channels = g.choice((1, 2)), value.size(1)
    if channels % size:
        raise Refused("channels of blocks")
    sizes = g.constant(fixed([1, value.size(2) + size - 1]))
    return g.node("Col2Im", [value, sizes, g.constant(fixed([1, size]))])


@family()
def texts(g: GraphWriter) -> Value:
    if g.opset < 20:
        raise Refused("newer operators")
    value = g.pick(et.TEXT)
    op_type = g.choice(("StringConcat", "RegexFullMatch", "StringNormalizer"))
    if op_type == "StringConcat":
        return g.node(op_type, [value, value])
    if op_type == "RegexFullMatch":
        return g.node(op_type, [value], pattern=g.choice(("[a-z]+", "a|B", "")))
    if value.rank != 1:
        raise Refused("it takes rows")
    return g.node(op_type, [value], case_change_action=g.choice(("LOWER", "UPPER", "NONE")), stopwords=["a"])


@family()
def mapped(g: GraphWriter) -> Value:
    """A body over the items of a sequence."""
    value = g.pick(et.F32, least=1, filled=True)
    made = g.node("SequenceConstruct", [value, value])
    if g.chance(0.3):
        empty = g.node("SequenceEmpty", [], dtype=1)
        return g.node("SequenceLength", [empty])
    return g.node("ConcatFromSequence", [made], axis=g.random.randrange(value.rank), new_axis=g.choice((0, 1)))


@family()
def other_reduction(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, et.F64, least=1, filled=True)
    op_type = g.choice(("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceMin", "ReduceLogSum"))
    axes = fixed(sorted(g.random.sample(range(value.rank), g.random.randint(1, value.rank))))
    if op_type == "ReduceLogSum":
        value = g.node("Abs", [value])
    if g.opset < 18:
        return g.node(op_type, [value], axes=axes.tolist(), keepdims=g.choice((0, 1)))
    return g.node(op_type, [value, g.constant(axes)], keepdims=g.choice((0, 1)))


@family()
def written_into_cache(g: GraphWriter) -> Value:
    if g.opset < 24:
        raise Refused("a newer operator")
    value = g.pick(et.F32, rank=4, filled=True)
    batch, heads, length, size = value.sizes(0, 1, 2, 3)
    cache = g.weights(et.F32, batch, heads, length + g.choice((0, 3)), size)
    places = g.constant(np.zeros(batch, np.int64)) if g.chance(0.6) else None
    return g.node("TensorScatter", [cache, value, places], axis=-2, mode="linear")


@family()
def bits_as_another_type(g: GraphWriter) -> Value:
    if g.opset < 26:
        raise Refused("a newer operator")
    return g.node("BitCast", [g.pick(et.I32, et.U32, et.I64, et.U64)], to=g.choice((12, 6, 13, 7)))


@family()
def grid(g: GraphWriter) -> Value:
    if g.opset < 20:
        raise Refused("a newer operator")
    count = g.choice((1, 2))
    theta = g.weights(et.F32, count, 2, 3)
    return g.node("AffineGrid", [theta, g.constant(fixed([count, 1, 3, 4]))], align_corners=g.choice((0, 1)))


@family()
def boxes_kept(g: GraphWriter) -> Value:
    count = g.choice((1, 5, 9))
    corners = g.numbers.uniform(0, 4, (1, count, 2))
    boxes = g.constant(np.concatenate([corners, corners + g.numbers.uniform(1, 3, (1, count, 2))], 2), et.F32)
    scores = g.constant(g.numbers.permutation(count).reshape(1, 1, count) / 10, et.F32)
    limits = [g.constant(np.asarray([g.choice((0, 3, 9))], np.int64)), g.constant(np.asarray([0.5]), et.F32)]
    return g.node("NonMaxSuppression", [boxes, scores, *limits])
