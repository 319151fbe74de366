"""Operators that ONNX dropped before opset 7, and that onnxruntime still runs in ONNX's domain."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


def node(g: GraphWriter, op_type: str, operands: list[Value], **attributes: object) -> Value:
    """Add a node where onnxruntime knows its operator.

    Raises:
        Refused: the opset or the type is too new.
    """
    if g.opset >= 10 or operands[0].dtype is et.BF16:
        raise Refused(f"{op_type} is gone, or has no bfloat16")
    made: Value = g.node(op_type, operands, **attributes)
    return made


@family()
def scaled_functions(g: GraphWriter) -> Value:
    op_type = g.choice(("Affine", "ParametricSoftplus", "ScaledTanh"))
    given = {"alpha": g.choice((0.5, 1.0, -1.5)), "beta": g.choice((0.5, 1.0, 2.0))}
    return node(g, op_type, [g.pick(et.F32)], **given)


@family()
def scaled(g: GraphWriter) -> Value:
    return node(g, "Scale", [g.pick(et.F32)], scale=g.choice((0.5, 1.0, -3.0)))


@family()
def scaled_channels(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=4)
    bias = g.numbers.uniform(-1, 1, value.size(1)).tolist()
    return node(g, "ImageScaler", [value], bias=bias, scale=g.choice((0.25, 1.0)))


@family()
def cropped(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=4, filled=True)
    height, width = (min(shape[axis] for shape in value.shapes) for axis in (2, 3))
    top, left = g.random.randrange(height), g.random.randrange(width)
    if g.chance(0.5):
        sizes = [g.random.randint(1, height - top), g.random.randint(1, width - left)]
        return node(g, "Crop", [value], border=[left, top, 0, 0], scale=sizes)
    ends = [g.random.randrange(width - left), g.random.randrange(height - top)]
    return node(g, "Crop", [value], border=[left, top, *ends])


@family()
def sliced_by_data(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, least=1)
    axes = sorted(g.random.sample(range(value.rank), g.random.randint(1, value.rank)))
    starts = fixed([g.choice((0, 0, 1, -3)) for _ in axes])
    ends = fixed([g.choice((2, 7, -1, 2**31 - 1)) for _ in axes])
    operands = [g.constant(each) for each in (starts, ends)]
    if axes != list(range(len(axes))) or g.chance(0.5):
        operands.append(g.constant(fixed(axes)))
    return node(g, "DynamicSlice", [value, *operands])
