"""Products and tables of com.microsoft whose weights are bytes: blocks of GGUF files, small floats, memory orders."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"
HALVES = (et.F16, et.BF16)
_BLOCKS = {2: (32, 18), 6: (32, 22), 8: (32, 34), 20: (32, 18), 42: (64, 18)}  # GGML's number: elements, bytes


def blocks_of(g: GraphWriter, rows: tuple[int, ...], columns: int, number: int) -> np.ndarray:
    """Return rows of packed blocks: a float16 scale in front of random bytes each."""
    elements, nbytes = _BLOCKS[number]
    count = columns // elements
    made = g.numbers.integers(0, 256, (*rows, count, nbytes)).astype(np.uint8)
    scales = g.numbers.uniform(0.001, 0.01, (*rows, count, 1)).astype(np.float16)
    made[..., :2] = scales.view(np.uint8).reshape(*rows, count, 2)
    return made.reshape(*rows, count * nbytes)


def packing(g: GraphWriter) -> tuple[int, int]:
    """Return the number of a format, and how many columns of it there are."""
    number = g.choice(tuple(_BLOCKS))
    return number, _BLOCKS[number][0] * g.choice((1, 2))


@family()
def packed_product(g: GraphWriter) -> Value:
    number, columns = packing(g)
    count = g.choice((1, 5, 16, 17))
    x = g.weights(g.choice(HALVES), g.choice((1, 2, 5)), columns)
    given = {"K": columns, "N": count, "packed_type": number}
    activation = g.choice(("none", "silu", "relu2"))
    return g.node(
        "MatMulPacked", [x, g.constant(blocks_of(g, (count,), columns, number))], domain=MICROSOFT,
        activation_type=activation, **given,
    )  # fmt: skip


@family()
def packed_table(g: GraphWriter) -> Value:
    number, columns = packing(g)
    table = g.constant(blocks_of(g, (g.choice((1, 7)),), columns, number))
    places = g.constant(g.numbers.integers(-1, 8, g.choice(((3,), (2, 2)))))
    kind = g.choice((et.F32, et.F16)).onnx
    return g.node("GatherPacked", [table, places], domain=MICROSOFT, K=columns, packed_type=number, output_dtype=kind)


@family()
def packed_experts(g: GraphWriter) -> Value:
    number, width = packing(g)
    inner = _BLOCKS[number][0]
    experts = g.choice((2, 3))
    rows = g.choice((1, 4))
    x, scores = g.weights(g.choice(HALVES), rows, width), g.weights(et.F32, rows, experts)
    sides = [g.constant(blocks_of(g, (experts, inner), width, number)) for _ in range(2)]
    down = g.constant(blocks_of(g, (experts, width), inner, number))
    mixing = g.constant(g.numbers.uniform(0.1, 1, (rows, experts)), et.F32) if g.chance(0.4) else None
    given = {"gate_type": number, "up_type": number, "down_type": number, "k": g.choice((1, 2))}
    return g.node("MoEPacked", [x, scores, *sides, down, mixing], domain=MICROSOFT, **given)


@family()
def columns_of_four_bits(g: GraphWriter) -> Value:
    """MatMulFpQ4: a blob of scales, zero points and codes, column by column."""
    kind = g.choice((0, 1))
    length, zeros = 32, kind
    depth, width = length * g.choice((1, 2)), g.choice((1, 5, 16))
    count = width * -(-depth // length)
    blob = g.numbers.integers(0, 256, (count, 4 + zeros + length // 2)).astype(np.uint8)
    blob[:, :4] = g.numbers.uniform(0.01, 0.05, (count, 1)).astype("<f4").view(np.uint8)
    blob[:, 4 : 4 + zeros] = 8
    x = g.weights(et.F32, g.choice((1, 3)), depth)
    sizes = g.constant(np.array([depth, width]))
    return g.node("MatMulFpQ4", [x, g.constant(blob.reshape(-1)), sizes], domain=MICROSOFT, blk_quant_type=kind)


def _bits(g: GraphWriter, rows: int, columns: int, bits: int, block: int) -> list[Value]:
    """Return bytes of codes in blocks, and their scales."""
    blocks = -(-columns // block)
    codes = g.numbers.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    return [g.constant(codes), g.constant(g.numbers.uniform(0.001, 0.01, (rows, blocks)), et.F32)]


@family()
def product_with_adapter(g: GraphWriter) -> Value:
    depth, width, rank = g.choice((16, 20, 33)), g.choice((1, 5, 17)), g.choice((1, 6))
    x = g.weights(et.F32, g.choice((1, 3)), depth)
    parts = [*_bits(g, width, depth, 4, 16), *_bits(g, rank, depth, 8, 16), *_bits(g, width, rank, 8, 16)]
    given = {"K": depth, "N": width, "block_size": 16, "lora_block_size": 16}
    return g.node("MatMulNBitsQLoRA", [x, *parts], domain=MICROSOFT, **given)


@family()
def blocks_of_small_floats(g: GraphWriter) -> Value:
    depth, width, block = g.choice((16, 32, 48)), g.choice((1, 5, 16)), 16
    x = g.weights(g.choice(HALVES), g.choice((1, 3)), depth)
    bias = g.weights(x.dtype, width) if g.chance(0.5) else None
    blocks = -(-depth // block)
    scales = g.numbers.uniform(0.1, 0.5, (width, blocks))
    if g.chance(0.5):
        weights = g.constant(g.numbers_of(et.F8E4, (width, depth)))
        return g.node(
            "MatMulBlockQuantizedFp8Weight", [x, weights, g.constant(scales, et.F32), None, bias], domain=MICROSOFT,
            block_size=block,
        )  # fmt: skip
    codes = g.constant(g.numbers.integers(0, 256, (width, depth // 2)), et.U8)
    small = g.constant(scales.astype(et.F8E4.numpy).view(np.uint8))
    whole = g.constant(np.array([0.25]), et.F32)
    return g.node(
        "MatMulBlockQuantizedFp4Weight", [x, codes, small, whole, None, bias], domain=MICROSOFT, block_size=block
    )


@family()
def product_of_small_floats(g: GraphWriter) -> Value:
    kind = g.choice((et.F8E4, et.F32))
    rows, depth, width = g.choice((1, 3)), g.choice((1, 8, 17)), g.choice((1, 5, 16))
    turned = g.choice((0, 1)), g.choice((0, 1))
    sides = [(depth, rows) if turned[0] else (rows, depth), (width, depth) if turned[1] else (depth, width)]
    operands: list[Value | None] = [g.constant(g.numbers_of(kind, each), kind) for each in sides]
    if kind is et.F32 and g.chance(0.5):
        operands.append(g.constant(g.numbers_of(et.F32, (rows, width))))
    given = {"transA": turned[0], "transB": turned[1], "alpha": g.choice((1.0, 0.5)), "beta": g.choice((0.0, 1.0))}
    activation = g.choice((None, "NONE", "RELU"))
    return g.node("GemmFloat8", operands, domain=MICROSOFT, dtype=1, activation=activation, **given)


@family()
def ordered_bytes(g: GraphWriter) -> Value:
    """Bytes in a memory order, and what is done with them: all in row-major order."""
    value = g.weights(et.F32, g.choice((1, 3)), g.choice((2, 8)))
    steps = [g.constant(np.float32(step)) for step in (0.02, 0.05, 0.04)]
    order = {"order_input": 1, "order_output": 1}
    made = g.node("QuantizeWithOrder", [value, steps[0]], domain=MICROSOFT, **order)
    step = steps[0]
    if g.chance(0.4):
        made = g.node("QOrderedGelu", [made, step, steps[1]], domain=MICROSOFT, order_X=1, order_Y=1)
        step = steps[1]
    if g.chance(0.4):
        rows = g.weights(et.F32, value.size(-1), low=0.5), g.weights(et.F32, value.size(-1))
        made = g.node("QOrderedLayerNormalization", [made, step, *rows, steps[2]], domain=MICROSOFT)
        step = steps[2]
    return g.node("DequantizeWithOrder", [made, step], domain=MICROSOFT, to=et.F32.onnx, **order)
