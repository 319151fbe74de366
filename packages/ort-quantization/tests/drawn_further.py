"""More operators for random networks: com.microsoft's, bodies in bodies, weights that nodes make; half floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from float_models import FLOAT, MICROSOFT, Builder
from onnx import TensorProto, helper, numpy_helper

from ort_core.model_graphs import graphs_of

if TYPE_CHECKING:
    from drawn_networks import Network, Shape


def space(b: Network, value: str, shape: Shape, out: str):
    if len(shape) != 4 or shape[1] % 4 or shape[2] % 2 or shape[3] % 2 or max(shape[1:]) > 16:
        return None
    if b.chance(0.5):
        b.node("DepthToSpace", [value], out, blocksize=2)
        return [shape[0], shape[1] // 4, 2 * shape[2], 2 * shape[3]]
    b.node("SpaceToDepth", [value], out, blocksize=2)
    return [shape[0], 4 * shape[1], shape[2] // 2, shape[3] // 2]


def slopes(b: Network, value: str, shape: Shape, out: str):
    b.node("PRelu", [value, b.shared(out + "s", *b.one_of((1,), (shape[-1],)))], out)
    return shape


def arithmetic(b: Network, value: str, shape: Shape, out: str):
    kind = b.one_of("Div", "Pow", "Min", "Sqrt", "Sum")
    if kind == "Sqrt":
        b.node("Sqrt", [b.node("Abs", [value], out + "a")], out)
    elif kind == "Pow":
        b.node("Pow", [value, b.constant(out + "p", np.float32(2))], out)
    elif kind == "Div":
        b.node("Div", [value, b.constant(out + "d", np.float32(b.one_of(0.5, 8.0)))], out)
    else:
        b.node(kind, [value, b.shared(out + "c", shape[-1]), value], out)
    return shape


def repeat(b: Network, value: str, shape: Shape, out: str):
    if max(shape) > 16:
        return None
    if b.chance(0.5):
        b.node("Tile", [value, b.ints(out + "r", [1] * (len(shape) - 1) + [2])], out)
        return [*shape[:-1], 2 * shape[-1]]
    if b.opset < 8:
        return None
    b.node("Expand", [value, b.ints(out + "s", shape)], out)
    return shape


def reductions(b: Network, value: str, shape: Shape, out: str):
    kind = b.one_of("ReduceMax", "ReduceMin", "ReduceL2")
    if b.opset >= 18:
        b.node(kind, [value, b.ints(out + "a", [1])], out, keepdims=1)
    else:
        b.node(kind, [value], out, axes=[1], keepdims=1)
    return [shape[0], 1, *shape[2:]]


def contributed(b: Network, value: str, shape: Shape, out: str):
    kind = b.one_of("FastGelu", "BiasGelu", "QuickGelu", "SkipLayerNormalization", "FusedMatMul")
    if kind == "QuickGelu":
        b.node(kind, [value], out, domain=MICROSOFT, alpha=1.5)
    elif kind in ("FastGelu", "BiasGelu"):
        b.node(kind, [value, b.shared(out + "b", shape[-1])], out, domain=MICROSOFT)
    elif kind == "FusedMatMul":
        b.node(kind, [value, b.shared(out + "w", shape[-1], 6)], out, domain=MICROSOFT, alpha=0.5)
        return [*shape[:-1], 6]
    elif len(shape) != 3:
        return None
    else:
        inputs = [value, value, b.shared(out + "g", shape[-1]), b.shared(out + "b", shape[-1])]
        b.node(kind, inputs, out, domain=MICROSOFT)
    return shape


def words(b: Network, value: str, shape: Shape, out: str):
    """Embeddings of two tables and their norm, added to nothing: the value that was drawn is left to others."""
    if "ids" in b.inputs and b.types["ids"] != TensorProto.INT32:
        return None
    b.inputs["ids"], b.types["ids"] = (2, 5), TensorProto.INT32
    tables = [b.weight(out + "w", 10, 8), b.weight(out + "p", 6, 8)]
    inputs = ["ids", "", *tables, "", b.weight(out + "g", 8), b.weight(out + "b", 8)]
    b.node("EmbedLayerNormalization", inputs, [out, out + "m"], domain=MICROSOFT)
    b.types[out + "m"] = TensorProto.INT32
    return [2, 5, 8]


def made_weight(b: Network, value: str, shape: Shape, out: str):
    """A product with a weight that a node gives: turned, or kept in half floats."""
    form = b.one_of("turned", "half", "passed")
    if form == "turned":
        made = b.node("Transpose", [b.shared(out + "w", 6, shape[-1])], out + "t", perm=[1, 0])
    elif form == "half":
        made = b.node("Cast", [b.weight(out + "w", shape[-1], 6, dtype=np.float16)], out + "t", to=FLOAT)
    else:
        made = b.node("Identity", [b.shared(out + "w", shape[-1], 6)], out + "t")
    b.node("MatMul", [value, made], out)
    return [*shape[:-1], 6]


def volume(b: Network, value: str, shape: Shape, out: str):
    """A convolution over three axes."""
    if len(shape) != 4 or max(shape[1:]) > 8:
        return None
    b.node("Reshape", [value, b.ints(out + "s", [shape[0], 1, *shape[1:]])], out + "u")
    inputs = [out + "u", b.shared(out + "w", 2, 1, 1, 3, 3), *([b.shared(out + "b", 2)] if b.chance(0.5) else [])]
    b.node("Conv", inputs, out + "c", pads=[0, 1, 1, 0, 1, 1])
    b.node("Reshape", [out + "c", b.ints(out + "r", [shape[0], 2 * shape[1], *shape[2:]])], out)
    return [shape[0], 2 * shape[1], *shape[2:]]


def _value(name: str, shape: Shape | None, kind: int = FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def scan(b: Network, value: str, shape: Shape, out: str):
    """A product of each row, added to what the rows before gave."""
    if b.opset < 9 or len(shape) < 2:
        return None
    own, row = Builder(b.opset, len(out)), list(shape[1:])
    weight = own.weight(out + "v", row[-1], row[-1])
    product = own.node("MatMul", [out + "row", weight], out + "p", out + "mn")
    own.node("Add", [product, out + "old"], out + "new", out + "an")
    own.node("Identity", [out + "new"], out + "each", out + "dn")
    given = [_value(out + "old", row), _value(out + "row", row)]
    body = helper.make_graph(
        own.nodes, "body", given, [_value(out + "new", row), _value(out + "each", row)], own.tensors
    )
    start = b.constant(out + "z", np.zeros(row, np.float32))
    b.node("Scan", [start, value], [out + "last", out], body=body, num_scan_inputs=1)
    return shape


def branch_in_branch(b: Network, value: str, shape: Shape, out: str):
    """An If inside an If, whose branches read weights of each graph around."""
    if "flag" not in b.inputs:
        b.inputs["flag"], b.types["flag"] = (), TensorProto.BOOL
    outer, made = b.shared(out + "w", shape[-1], 6), [*shape[:-1], 6]
    count = 0

    def product(weight: str, own: Builder) -> onnx.GraphProto:
        nonlocal count
        count += 1
        node = own.node("MatMul", [value, weight], f"{out}p{count}", f"{out}n{count}")
        return helper.make_graph(own.nodes, f"g{count}", [], [_value(node, made)], own.tensors)

    middle = Builder(b.opset, 5)
    between = middle.weight(out + "between", shape[-1], 6)
    inner = middle.node(
        "If", ["flag"], out + "i", out + "in", then_branch=product(between, Builder(b.opset)),
        else_branch=product(outer, Builder(b.opset)),
    )  # fmt: skip
    first = helper.make_graph(middle.nodes, "first", [], [_value(inner, made)], middle.tensors)
    b.node("If", ["flag"], out, then_branch=first, else_branch=product(outer, Builder(b.opset)))
    return made


FURTHER = (
    space, slopes, arithmetic, repeat, reductions, contributed, words, made_weight, volume, scan, branch_in_branch,
)  # fmt: skip


def in_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in float16: numbers, types and casts."""
    for graph in graphs_of(model.graph):
        scales = {name for node in graph.node if node.op_type == "Resize" for name in node.input[1:]}
        for tensor in graph.initializer:
            if tensor.name not in scales:
                _halve(tensor)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == FLOAT:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
        for node in graph.node:
            for attribute in node.attribute:
                _halve(attribute.t)
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                    attribute.i = TensorProto.FLOAT16
    return model


def _halve(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
