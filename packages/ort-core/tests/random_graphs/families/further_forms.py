"""Attributes and inputs of operators that compiled code reads, and that other families leave out."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.attention import projected, sequence
from random_graphs.families.images import image
from random_graphs.families.operands import fixed, lowest
from random_graphs.families.quantized import scale, zero_point
from random_graphs.families.quantized_operators import quantized_value, weights_for
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


@family(2)
def turned_product(g: GraphWriter) -> Value:
    """FusedMatMul of matrices whose rows, columns and batches change places."""
    value = g.pick(et.F32, least=2, most=4, filled=True)
    turns = {name: g.choice((0, 1)) for name in ("transA", "transB")}
    if value.rank > 2:
        turns |= {name: g.choice((0, 1)) for name in ("transBatchA", "transBatchB")}
    sizes = value.sizes(*range(value.rank))
    batches, depth = sizes[:-2], sizes[-2 if turns["transA"] else -1]
    if turns.get("transBatchA"):
        batches, depth = sizes[1:-1], sizes[0 if turns["transA"] else -1]
    columns = g.choice((1, 8, 17))
    shape = [columns, depth] if turns["transB"] else [depth, columns]
    shape = [shape[0], *batches, shape[1]] if turns.get("transBatchB") else [*batches, *shape]
    operands, given = [value, g.weights(et.F32, *shape)], {**turns, "alpha": g.choice((1.0, -0.5))}
    if g.chance(0.3):
        return g.node("FusedMatMulActivation", operands, domain=MICROSOFT, activation="Relu", **given)
    return g.node("FusedMatMul", operands, domain=MICROSOFT, **given)


@family()
def turned_gemm(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=2, filled=True)
    turns, columns = {name: g.choice((0, 1)) for name in ("transA", "transB")}, g.choice((1, 8, 17))
    rows, depth = value.sizes(*((1, 0) if turns["transA"] else (0, 1)))
    addend = g.weights(et.F32, *g.choice(((columns,), (rows, 1), (rows, columns), ())))
    operands = [value, g.weights(et.F32, *((columns, depth) if turns["transB"] else (depth, columns))), addend]
    given = {**turns, "alpha": g.choice((1.0, 0.5)), "beta": g.choice((1.0, 0.0, 2.0))}
    name = g.choice(("LeakyRelu", "Elu", "HardSigmoid", "ThresholdedRelu"))
    slopes = {"activation_alpha": 0.3, "activation_beta": 0.4 if name == "HardSigmoid" else None}
    return g.node("FusedGemm", operands, domain=MICROSOFT, activation=name, **slopes, **given)


@family(2)
def masked_projection(g: GraphWriter) -> list[Value]:
    """com.microsoft::Attention with a mask, a past, an addend, or values of another size."""
    value = sequence(g, et.F32)
    batch, length, depth = value.sizes(0, 1, 2)
    heads, size, past = g.choice((1, 2)), g.choice((4, 8)), g.choice((0, 0, 3))
    columns = heads * size
    sizes = [columns, columns, columns if past or g.chance(0.6) else 2 * columns]
    operands: list[Value | None] = [
        value, g.weights(et.F32, depth, sum(sizes), low=-0.4, high=0.4), g.weights(et.F32, sum(sizes)),
    ]  # fmt: skip
    total = past + length
    kind = g.choice(("none", "rows", "ends", "squares"))
    shape = {"rows": (batch, total), "ends": (batch,), "squares": (batch, length, total)}.get(kind)
    mask = None if shape is None else g.numbers.integers(0, 2, shape)
    if mask is not None:
        mask[..., 0] = 1
        mask = g.numbers.integers(1, total + 1, shape) if kind == "ends" else mask
    operands.append(None if mask is None else g.constant(mask.astype(np.int32)))
    operands.append(g.constant(g.numbers_of(et.F32, (2, batch, heads, past, size))) if past else None)
    if not past and g.chance(0.3):
        operands.append(g.constant(g.numbers_of(et.F32, (g.choice((1, batch)), heads, length, total))))
    given: dict[str, Any] = {"num_heads": heads, "unidirectional": g.choice((0, 1)), "scale": g.choice((None, 0.3))}
    if len(set(sizes)) > 1 or g.chance(0.3):
        given["qkv_hidden_sizes"] = sizes
    if mask is not None and g.chance(0.3):
        given["mask_filter_value"] = -1000.0
    made = g.node("Attention", operands, 2 if past else 1, domain=MICROSOFT, **given)
    return made if past else [made]


@family(2)
def shared_keys(g: GraphWriter) -> list[Value]:
    """A query of keys that another layer has written, in caches with room behind them."""
    value = sequence(g, et.F32)
    batch, length = value.sizes(0, 1)
    groups, size, room = g.choice((1, 2)), 16, g.choice((5, 8, 17))
    heads = groups * g.choice((1, 2))
    if length > room or (length > 1 and batch > 1):
        raise Refused("several queries of several sequences with a past")
    query = projected(g, value, heads * size)
    nothing = g.constant(np.zeros((batch, 0, groups * size), np.float32))
    caches = [g.constant(g.numbers_of(et.F32, (batch, groups, room, size))) for _ in range(2)]
    lengths = g.numbers.integers(length - 1, room, batch).astype(np.int32)
    ends = [g.constant(lengths), g.constant(np.asarray(lengths.max() + 1, np.int32))]
    angles = np.outer(np.arange(room), 100.0 ** (-np.arange(size // 2) / size))
    turns = [g.constant(f(angles), et.F32) for f in (np.cos, np.sin)] if g.chance(0.4) else []
    return g.node(
        "GroupQueryAttention", [query, nothing, nothing, *caches, *ends, *turns], 3, domain=MICROSOFT, num_heads=heads,
        kv_num_heads=groups, do_rotary=1 if turns else None, rotary_interleaved=g.choice((None, 1)) if turns else None,
        local_window_size=g.choice((None, None, 4)), smooth_softmax=g.choice((None, None, 1)),
    )  # fmt: skip


@family()
def turned_quantized_gemm(g: GraphWriter) -> Value:
    value = quantized_value(g, 2, 2)
    columns, turned = g.choice((1, 8, 16, 17)), g.choice((0, 1))
    depth = value.size(1)
    weights = weights_for(g, value.dtype, *((columns, depth) if turned else (depth, columns)))
    operands = [value, scale(g), zero_point(g, value.dtype), weights, scale(g), zero_point(g, weights.dtype), None]
    grid = [scale(g, low=0.05, high=0.5), zero_point(g, value.dtype)]
    operands += g.choice(([], grid))  # with one of both onnxruntime reads beyond its lists
    return g.node("QGemm", operands, domain=MICROSOFT, transB=turned, alpha=g.choice((1.0, 0.5)))


@family()
def gathered_axes(g: GraphWriter) -> Value:
    rows, size, bits = g.choice((3, 5)), 16, g.choice((4, 8))
    indices = g.constant(g.numbers.integers(-rows, rows, g.choice(((2, 3), (4,)))).astype(np.int64))
    if bits == 8:
        data = g.constant(g.numbers.integers(0, 256, (rows, 2 * size)), et.U8)
    else:
        data = g.constant(g.numbers.integers(0, 16, (2 * size, rows)), et.U4)
    axes = {"gather_axis": 0, "quantize_axis": 1} if bits == 8 else {"gather_axis": 1, "quantize_axis": 0}
    scales = g.weights(et.F32, *((rows, 2) if bits == 8 else (2, rows)), low=lowest(g, 0.1, 1), high=1)
    return g.node("GatherBlockQuantized", [data, indices, scales], domain=MICROSOFT, block_size=size, bits=bits, **axes)


@family()
def cut_regions(g: GraphWriter) -> Value:
    """Resize some axes: of a region, or with the proportions of the image."""
    value = g.pick(et.F32, rank=4, filled=True)
    if g.opset < 18:
        raise Refused("axes of Resize are newer")
    sizes = g.constant(np.asarray([g.choice((2, 4, 7, 8, 16)) for _ in range(2)], np.int64))
    given: dict[str, Any] = {"axes": g.choice(([2, 3], [-2, -1])), "mode": g.choice(("nearest", "linear"))}
    if g.chance(0.5):
        region = g.constant(np.asarray([0.1, 0.0, 0.8, g.choice((1.0, 1.3))]), et.F32)
        given |= {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": g.choice((None, -7.0))}
        return g.node("Resize", [value, region, None, sizes], **given)
    given |= {"axes": [2, 3], "keep_aspect_ratio_policy": g.choice(("not_larger", "not_smaller"))}
    return g.node("Resize", [value, None, None, sizes], **given)


@family()
def columns_of_images(g: GraphWriter) -> Value:
    """Col2Im with steps, paddings and holes."""
    if g.opset < 18:
        raise Refused("a newer operator")
    kernel, steps = [g.choice((1, 2, 3)) for _ in range(2)], [g.choice((1, 2)) for _ in range(2)]
    holes, pads = [g.choice((1, 2)) for _ in range(2)], [g.choice((0, 1)) for _ in range(4)]
    sizes = [g.choice((5, 8, 9)) for _ in range(2)]
    reach = [sizes[a] + pads[a] + pads[a + 2] - holes[a] * (kernel[a] - 1) - 1 for a in range(2)]
    count = int(np.prod([room // step + 1 for room, step in zip(reach, steps, strict=True)]))
    columns = g.weights(et.F32, g.choice((1, 2)), g.choice((1, 3)) * kernel[0] * kernel[1], count)
    given = {"strides": steps, "dilations": holes, "pads": pads}
    return g.node("Col2Im", [columns, g.constant(fixed(sizes)), g.constant(fixed(kernel))], **given)


@family()
def trained_normalization(g: GraphWriter) -> list[Value]:
    """A batch normalization by the batch's own moments."""
    value = g.pick(et.F32, least=2, filled=True)
    if g.opset < 14 or value.dtype is not et.F32:
        raise Refused("a newer attribute, and moments in the type of the means")
    count = value.size(1)
    parts = [g.constant(g.numbers_of(et.F32, (count,))) for _ in range(3)]  # onnxruntime writes over those that are fed
    variance = g.constant(g.numbers_of(et.F32, (count,), 0.3, 2))
    return g.node("BatchNormalization", [value, *parts, variance], 3, training_mode=1, momentum=0.7)


@family()
def no_axes(g: GraphWriter) -> Value:
    """Reductions over an empty list of axes: of all, or of none."""
    if g.opset < 18:
        raise Refused("axes are attributes")
    value = g.pick(et.F32, least=1, filled=True)
    name = g.choice(("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"))
    axes = g.choice((None, g.constant(np.zeros(0, np.int64))))
    return g.node(name, [value, axes], keepdims=g.choice((0, 1)), noop_with_empty_axes=g.choice((0, 1)))


@family()
def gathered_beside_batches(g: GraphWriter) -> Value:
    if g.opset < 12:
        raise Refused("a newer attribute")
    value = g.pick(et.F32, et.I64, et.F16, least=2, most=4, filled=True)
    sizes = value.sizes(0, 1)
    indices = g.numbers.integers(-sizes[1], sizes[1], (sizes[0], g.choice((1, 3)), 1))
    return g.node("GatherND", [value, g.constant(indices.astype(np.int64))], batch_dims=1)


@family()
def grown_images(g: GraphWriter) -> Value:
    """A transposed convolution that is told the size of its result."""
    value = image(g, et.F32, least=4, most=4)
    height, width = value.sizes(2, 3)
    kernel, step, count = g.choice((2, 3)), g.choice((1, 2)), g.choice((1, 4, 17))
    weights = g.weights(et.F32, value.size(1), count, kernel, kernel, low=-0.3, high=0.3)
    shape = [(size - 1) * step + kernel - g.choice((0, 1)) for size in (height, width)]
    if min(shape) < 1:
        raise Refused("no pixel is left")
    where = g.choice((None, "SAME_UPPER", "SAME_LOWER"))
    return g.node("ConvTranspose", [value, weights], strides=[step] * 2, output_shape=shape, auto_pad=where)


@family()
def loose_conversion(g: GraphWriter) -> Value:
    """To 8-bit floats, what is too large becomes no number; and back."""
    if g.opset < 21:
        raise Refused("newer types")
    value, kind = g.pick(et.F32, et.F16), g.choice((et.F8E4, et.F8E5))
    saturate = g.choice((0, 1))
    if g.chance(0.5):
        return g.node("Cast", [g.node("Cast", [value], to=kind.onnx, saturate=saturate)], to=value.dtype.onnx)
    step = scale(g, value.dtype)
    return g.node(
        "DequantizeLinear",
        [g.node("QuantizeLinear", [value, step], output_dtype=kind.onnx, saturate=saturate), step],
    )


@family()
def near_keys(g: GraphWriter) -> Value:
    """Attention to keys of a window around each query."""
    if g.opset < 28:
        raise Refused("a newer attribute")
    value = sequence(g, et.F32, et.F32, et.F16)
    heads, size = g.choice((1, 2)), g.choice((4, 8))
    operands = [projected(g, value, heads * size) for _ in range(3)]
    window = {"left_window_size": g.choice((-1, 0, 2)), "right_window_size": g.choice((-1, 0, 2))}
    return g.node("Attention", operands, q_num_heads=heads, kv_num_heads=heads, **window)


@family()
def part_of_heads(g: GraphWriter) -> Value:
    """Rotary positions that turn the first elements of each head alone."""
    value = sequence(g, et.F32, et.F32, et.F16)
    length, heads, size = value.size(1), g.choice((1, 2)), g.choice((8, 16))
    part = size // 2
    angles = np.outer(np.arange(length), 100.0 ** (-np.arange(part // 2) / part))
    positions = np.tile(np.arange(length), (value.size(0), 1)).astype(np.int64)
    operands = [projected(g, value, heads * size), g.constant(positions)]
    operands += [g.constant(function(angles), value.dtype) for function in (np.cos, np.sin)]
    given = {"num_heads": heads, "rotary_embedding_dim": part, "interleaved": g.choice((0, 1))}
    if g.opset >= 23 and g.chance(0.5):
        return g.node("RotaryEmbedding", [operands[0], *operands[2:], operands[1]], **given)
    return g.node("RotaryEmbedding", operands, domain=MICROSOFT, **given)
