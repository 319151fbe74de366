"""Inputs that are sequences of tensors, or maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

_LEAST = 2  # tensors of a sequence under each assignment


def sequence_of(g: GraphWriter, dtype: et.ElementType, rank: int, *, alike: bool) -> Value:
    """Add a sequence of tensors of a rank: of one shape, or each of its own."""
    samples = []
    for _ in range(g.assignments):
        count = g.choice((_LEAST, 3, 5))
        common = [g.some_size() for _ in range(rank)]
        shapes = [common if alike else [g.choice((1, 2, 5)) for _ in range(rank)] for _ in range(count)]
        samples.append([g.numbers_of(dtype, shape) for shape in shapes])
    shape = [None] * rank if g.chance(0.5) else None
    return g.fed(samples, helper.make_sequence_type_proto(helper.make_tensor_type_proto(dtype.onnx, shape)))


@family(2, in_bodies=False)
def fed_sequence(g: GraphWriter) -> Value:
    """Read a tensor of a sequence that is fed, perhaps behind a change, or how many there are."""
    if g.opset < 11:
        raise Refused("a newer type")
    rank = g.choice((0, 1, 2, 3))
    dtype = g.choice((et.F32, et.F32, et.I64, et.F64, et.BOOL))
    given = sequence_of(g, dtype, rank, alike=False)
    if g.chance(0.4):
        more = g.constant(g.numbers_of(dtype, [g.choice((1, 3)) for _ in range(rank)]))
        place = g.constant(np.asarray(g.choice((0, 1, -1)), np.int64)) if g.chance(0.5) else None
        given = g.node("SequenceInsert", [given, more, place])
    if g.chance(0.3):
        given = g.node("SequenceErase", [given, g.constant(np.asarray(g.choice((0, -1)), np.int64))])
    if g.chance(0.3):
        return g.node("SequenceLength", [given])
    return g.node("SequenceAt", [given, g.constant(np.asarray(g.choice((0, 0, -1)), np.int64))])


@family(in_bodies=False)
def fed_sequence_joined(g: GraphWriter) -> Value:
    if g.opset < 11:
        raise Refused("a newer type")
    rank = g.choice((1, 2, 3))
    given = sequence_of(g, g.choice((et.F32, et.F32, et.I64)), rank, alike=True)
    if g.chance(0.5):
        return g.node("ConcatFromSequence", [given], axis=g.random.randrange(rank))
    return g.node("ConcatFromSequence", [given], axis=g.random.randrange(rank + 1), new_axis=1)


@family(in_bodies=False)
def fed_map(g: GraphWriter) -> Value:
    """CastMap: numbers or texts by integers, as a row of numbers."""
    has_texts = g.chance(0.3)
    samples: list[dict[Any, Any]] = []
    for _ in range(g.assignments):
        keys = g.random.sample(range(12), g.choice((1, 3, 7)))
        numbers = [float(np.float32(g.random.uniform(-9, 9))) for _ in keys]
        samples.append(dict(zip(keys, [str(round(n)) if has_texts else n for n in numbers], strict=True)))
    kind = TensorProto.STRING if has_texts else TensorProto.FLOAT
    given = g.fed(samples, helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(kind, [])))
    target = g.choice(("TO_FLOAT", "TO_FLOAT", "TO_INT64"))
    form = {"map_form": "SPARSE", "max_map": g.choice((5, 12))} if g.chance(0.5) else {}
    return g.node("CastMap", [given], domain="ai.onnx.ml", cast_to=target, **form)


@family(in_bodies=False)
def fed_dictionary(g: GraphWriter) -> Value:
    """DictVectorizer: the numbers of a vocabulary, of integers or of texts."""
    has_texts = g.chance(0.5)
    words: list[Any] = ["a", "b c", "", "é", "B"] if has_texts else [1, -3, 7, 2**40, 0]
    samples: list[dict[Any, Any]] = []
    for _ in range(g.assignments):
        chosen = g.random.sample(words, g.choice((1, 3)))
        samples.append({word: float(np.float32(g.random.uniform(-9, 9))) for word in chosen})
    key = TensorProto.STRING if has_texts else TensorProto.INT64
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    given = g.fed(samples, helper.make_map_type_proto(key, number))
    asked = g.random.sample(words, g.choice((1, 4)))
    name = "string_vocabulary" if has_texts else "int64_vocabulary"
    made = g.node("DictVectorizer", [given], domain="ai.onnx.ml", **{name: asked})
    return g.node("Reshape", [made, g.constant(fixed([-1]))]) if g.chance(0.3) else made
