"""Projections by weights of few bits behind one normalized input: a gated block, and queries, keys and values."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import lowest
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"


def _weights(g: GraphWriter, dtype: et.ElementType, rows: int, width: int, given: dict[str, int]) -> list[Value | None]:
    """Return packed weights, their scales, and a bias or none."""
    bits, block = given["bits"], given["block_size"]
    blocks = -(-width // block)
    packed = g.numbers.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    largest = 0.1 * 2.0 ** (4 - bits)
    scales = g.numbers_of(dtype, (rows, blocks), lowest(g, largest / 4, largest), largest)
    return [g.constant(packed), g.constant(scales), g.weights(dtype, rows) if g.chance(0.5) else None]


def _normalized(g: GraphWriter, value: Value, *, always: bool) -> list[Value | None]:
    """Return input, what is added to it, and scales of its norm; the middle one or both may be left out."""
    if not always and g.chance(0.3):
        return [value, None, None]
    skip = g.node("Neg", [g.node("Abs", [value])]) if g.chance(0.4) else None
    scale = g.numbers_of(value.dtype, (value.size(-1),), 0.5, 1.5)  # onnxruntime wants its size as a number
    return [value, skip, g.constant(scale)]


def _bits(g: GraphWriter) -> dict[str, int]:
    return {"bits": g.choice((4, 4, 8)), "block_size": g.choice((16, 32))}


@family(2)
def gated_block(g: GraphWriter) -> Value:
    """MatMulNBitsMlp: two projections, the one a gate of the other."""
    value = g.pick(et.F32, et.F16, least=2, most=3, filled=True)
    width, rows, given = value.size(-1), g.choice((1, 8, 17)), _bits(g)
    operands = [*_normalized(g, value, always=False)]
    for _ in range(2):
        operands += _weights(g, value.dtype, rows, width, given)
    outputs = [True, g.chance(0.5)] if operands[1] is not None else [True]
    made = g.node(
        "MatMulNBitsMlp", operands, outputs, domain=MICROSOFT, K=width, N=rows, activation="silu", epsilon=0.01, **given
    )
    return made[0]


@family(2)
def queries_keys_values(g: GraphWriter) -> list[Value]:
    """MatMulNBitsQkv: three projections of one normalized input."""
    value = g.pick(et.F32, et.F16, least=2, most=3, filled=True)
    width, given = value.size(-1), _bits(g)
    queries, others = g.choice((1, 8, 17)), g.choice((1, 8))
    operands = [*_normalized(g, value, always=True)]
    for rows in (queries, others, others):
        operands += _weights(g, value.dtype, rows, width, given)
    outputs = [True] * 3 + ([True] if operands[1] is not None and g.chance(0.5) else [])
    return g.node(
        "MatMulNBitsQkv", operands, outputs, domain=MICROSOFT, K=width, Nq=queries, Nkv=others, epsilon=0.01, **given
    )
