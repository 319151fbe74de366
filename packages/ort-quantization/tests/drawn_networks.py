"""Random networks of every operator that is quantized, in every opset: shared weights, bodies, constants, odd forms.

``drawn_further`` has more operators.
"""

from __future__ import annotations

import numpy as np
import onnx
from drawn_further import FURTHER, in_halves
from float_models import FLOAT, MICROSOFT, Builder
from onnx import TensorProto, helper, numpy_helper

Shape = list[int]


class Network(Builder):
    """A model in the making, with the random numbers that choose it and the values that nodes may read."""

    def __init__(self, random: np.random.Generator, opset: int) -> None:
        super().__init__(opset, int(random.integers(1 << 20)))
        self.draw = random
        self.values: list[tuple[str, Shape]] = []
        self.weights: list[tuple[str, Shape]] = []
        self.inputs: dict[str, tuple] = {}
        self.types: dict[str, int] = {}

    def one_of(self, *choices: object):
        """One of some choices."""
        return choices[int(self.draw.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        """Whether something that happens so often happens."""
        return bool(self.draw.random() < share)

    def shared(self, name: str, *shape: int) -> str:
        """A weight: now and then an earlier one of that shape, or what a Constant node gives."""
        known = [each for each, found in self.weights if found == list(shape)]
        if known and self.chance(0.4):
            return self.one_of(*known)
        self.weight(name, *shape, spread=self.one_of(0.5, 1.0, 2.0))
        self.weights.append((name, list(shape)))
        if self.chance(0.1):
            tensor = self.tensors.pop()
            self.nodes.append(helper.make_node("Constant", [], [name], f"constant_{name}", value=tensor))
        return name

    def ints(self, name: str, values: list[int]) -> str:
        """A tensor of integers."""
        return self.constant(name, values, np.int64)

    def as_input_or_attribute(self, since: int, key: str, name: str, values: list[int]):
        """What opsets before ``since`` have as an attribute: further inputs, and attributes."""
        return ([self.ints(name, values)], {}) if self.opset >= since else ([], {key: values})


def conv(b: Network, value: str, shape: Shape, out: str):
    if len(shape) not in (3, 4):
        return None
    axes, count = len(shape) - 2, b.one_of(4, 8)
    groups = b.one_of(1, 1, shape[1])
    count = count if count % groups == 0 else shape[1]
    size = b.one_of(1, 3)
    attributes = {"group": groups, "kernel_shape": [size] * axes, "strides": [b.one_of(1, 1, 2)] * axes}
    attributes |= {"auto_pad": "SAME_UPPER"} if b.chance(0.2) else {"pads": [size // 2] * 2 * axes}
    inputs = [value, b.shared(out + "w", count, shape[1] // groups, *[size] * axes)]
    inputs += [b.shared(out + "b", count)] if b.chance(0.6) else []
    b.node("Conv", inputs, out, **attributes)
    return [shape[0], count, *(-(-each // attributes["strides"][0]) for each in shape[2:])]


def conv_transpose(b: Network, value: str, shape: Shape, out: str):
    if len(shape) not in (3, 4) or max(shape[2:]) > 8:
        return None
    axes, groups = len(shape) - 2, b.one_of(1, 1, 2)
    groups = groups if shape[1] % groups == 0 else 1
    inputs = [value, b.shared(out + "w", shape[1], 4 // groups, *[2] * axes)]
    inputs += [b.shared(out + "b", 4)] if b.chance(0.5) else []
    b.node("ConvTranspose", inputs, out, strides=[2] * axes, group=groups)
    return [shape[0], 4, *(2 * each for each in shape[2:])]


def matmul(b: Network, value: str, shape: Shape, out: str):
    form = b.one_of("rows", "rows", "stack", "left", "values", "vector")
    if form == "stack" and len(shape) == 3:
        b.node("MatMul", [value, b.shared(out + "w", shape[0], shape[-1], 6)], out)
        return [*shape[:-1], 6]
    if form == "left":
        b.node("MatMul", [b.shared(out + "w", 5, shape[-2]), value], out)
        return [*shape[:-2], 5, shape[-1]]
    if form == "values":
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        b.node("MatMul", [value, b.node("Transpose", [value], out + "t", perm=order)], out)
        return [*shape[:-1], shape[-2]]
    if form == "vector" and len(shape) > 2:
        b.node("MatMul", [value, b.shared(out + "w", shape[-1])], out)
        return shape[:-1]
    columns = b.one_of(5, 16)
    b.node("MatMul", [value, b.shared(out + "w", shape[-1], columns)], out)
    return [*shape[:-1], columns]


def gemm(b: Network, value: str, shape: Shape, out: str):
    rows, turned, columns = int(np.prod(shape[1:])), b.one_of(0, 1), b.one_of(4, 7)
    if len(shape) != 2:
        value = b.node("Flatten", [value], out + "f")
    inputs = [value, b.shared(out + "w", *((columns, rows) if turned else (rows, columns)))]
    if b.opset < 11 or b.chance(0.8):
        inputs.append(b.shared(out + "b", *b.one_of((columns,), (columns,), (1, columns))))
    factors = b.one_of({}, {}, {"alpha": 0.5}, {"beta": 2.0})
    b.node("Gemm", inputs, out, transB=turned, **factors)
    return [shape[0], columns]


def lstm(b: Network, value: str, shape: Shape, out: str):
    if len(shape) != 3:
        return None
    directions = b.one_of(1, 2)
    inputs = [value, b.weight(out + "w", directions, 12, shape[-1]), b.weight(out + "r", directions, 12, 3)]
    inputs += [b.weight(out + "b", directions, 24)] if b.chance(0.7) else []
    direction = "bidirectional" if directions == 2 else b.one_of("forward", "reverse")
    b.node("LSTM", inputs, [out + "y", out + "h"], hidden_size=3, direction=direction)
    b.node("Transpose", [out + "y"], out + "t", perm=[0, 2, 1, 3])
    shape_of = b.ints(out + "s", [shape[0], shape[1], 3 * directions])
    b.node("Reshape", [out + "t", shape_of], out)
    return [shape[0], shape[1], 3 * directions]


def attention(b: Network, value: str, shape: Shape, out: str):
    if len(shape) != 3:
        return None
    inputs = [value, b.weight(out + "w", shape[-1], 24), b.weight(out + "b", 24)]
    b.node("Attention", inputs, out, domain=MICROSOFT, num_heads=2)
    return [*shape[:-1], 8]


def attention_by_products(b: Network, value: str, shape: Shape, out: str):
    if len(shape) != 3:
        return None
    heads = [b.node("MatMul", [value, b.shared(out + each, shape[-1], 8)], out + each + "p") for each in "qkv"]
    turned = b.node("Transpose", [heads[1]], out + "t", perm=[0, 2, 1])
    scores = b.node("MatMul", [heads[0], turned], out + "s")
    scores = b.node("Mul", [scores, b.constant(out + "f", np.float32(0.35))], out + "m")
    b.node("MatMul", [b.node("Softmax", [scores], out + "x", axis=2), heads[2]], out)
    return [*shape[:-1], 8]


def pool(b: Network, value: str, shape: Shape, out: str):
    if len(shape) not in (3, 4) or min(shape[2:]) < 2:
        return None
    axes = len(shape) - 2
    kind = b.one_of("MaxPool", "AveragePool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    if kind.startswith("Global"):
        b.node(kind, [value], out)
        return [*shape[:2], *[1] * axes]
    b.node(kind, [value], out, kernel_shape=[2] * axes, strides=[1] * axes)
    return [*shape[:2], *(each - 1 for each in shape[2:])]


def pointwise(b: Network, value: str, shape: Shape, out: str):
    kinds = ["Sigmoid", "LeakyRelu", "Tanh", "Softmax", "Relu", "Relu", "Elu", "Identity", "Dropout", "Exp", "Neg"]
    kinds += ["Erf"] if b.opset >= 9 else []
    kinds += ["HardSwish"] if b.opset >= 14 else []
    kinds += ["Gelu"] if b.opset >= 20 else []
    b.node(b.one_of(*kinds), [value], out)
    return shape


def clip(b: Network, value: str, shape: Shape, out: str):
    low, high = b.one_of((0.0, 6.0), (-1.0, 1.0), (0.0, 1.0))
    if b.opset < 11:
        b.node("Clip", [value], out, min=low, max=high)
    elif b.chance(0.3):
        b.node("Clip", [value, b.constant(out + "l", np.float32(low))], out)
    else:
        ends = [b.constant(out + "l", np.float32(low)), b.constant(out + "h", np.float32(high))]
        b.node("Clip", [value, *ends], out)
    return shape


def binary(b: Network, value: str, shape: Shape, out: str):
    same = [name for name, found in b.values if found == shape and name != value]
    other = b.one_of(*same) if same and b.chance(0.6) else None
    if other is None:
        sizes = b.one_of((shape[-1],), (1,), (), tuple(shape))
        other = b.constant(out + "c", np.float32(0.7)) if not sizes else b.shared(out + "c", *sizes)
    pair = [value, other] if b.chance(0.8) else [other, value]
    b.node(b.one_of("Add", "Add", "Mul", "Mul", "Sub", "Max"), pair, out)
    return shape


def concat(b: Network, value: str, shape: Shape, out: str):
    same = [name for name, found in b.values if found == shape and name != value]
    parts = [value, b.one_of(value, *same)]
    parts += [b.shared(out + "c", *shape)] if b.chance(0.3) else []
    axis = b.one_of(1, -1)
    if sum(shape) > 60:
        return None
    b.node("Concat", parts, out, axis=axis)
    made = list(shape)
    made[axis] *= len(parts)
    return made


def transpose(b: Network, value: str, shape: Shape, out: str):
    order = [0, *(int(each) + 1 for each in b.draw.permutation(len(shape) - 1))]
    b.node("Transpose", [value], out, perm=order)
    return [shape[each] for each in order]


def reshape(b: Network, value: str, shape: Shape, out: str):
    if b.chance(0.4):
        inputs, attributes = b.as_input_or_attribute(13, "axes", out + "a", [1])
        b.node("Unsqueeze", [value, *inputs], out + "u", **attributes)
        inputs, attributes = b.as_input_or_attribute(13, "axes", out + "z", [1])
        b.node("Squeeze", [out + "u", *inputs], out, **attributes)
        return shape
    made = [shape[0], int(np.prod(shape[1:-1])), shape[-1]] if len(shape) > 3 else [shape[0], -1]
    b.node("Reshape", [value, b.ints(out + "s", made)], out)
    return made if -1 not in made else [shape[0], int(np.prod(shape[1:]))]


def pad(b: Network, value: str, shape: Shape, out: str):
    ends = [0] * (len(shape) - 1) + [1] + [0] * (len(shape) - 1) + [b.one_of(0, 1)]
    mode = b.one_of("constant", "edge", "reflect")
    if shape[-1] < 3:
        return None
    inputs, attributes = b.as_input_or_attribute(11, "pads", out + "p", ends)
    if b.opset >= 11 and mode == "constant" and b.chance(0.4):
        inputs.append(b.constant(out + "v", np.float32(b.one_of(0.0, 0.5))))
    b.node("Pad", [value, *inputs], out, mode=mode, **attributes)
    return [*shape[:-1], shape[-1] + 1 + ends[-1]]


def split(b: Network, value: str, shape: Shape, out: str):
    if shape[1] < 2:
        return None
    sizes = [1, shape[1] - 1]
    inputs, attributes = b.as_input_or_attribute(13, "split", out + "s", sizes)
    b.node("Split", [value, *inputs], [out + "a", out], axis=1, **attributes)
    b.values.append((out + "a", [shape[0], 1, *shape[2:]]))
    return [shape[0], sizes[1], *shape[2:]]


def gather(b: Network, value: str, shape: Shape, out: str):
    if b.opset >= 11 and b.chance(0.3):
        b.node("GatherElements", [value, b.constant(out + "i", np.zeros(shape), np.int64)], out, axis=1)
        return shape
    if b.chance(0.4):
        if "ids" not in b.inputs:
            b.inputs["ids"], b.types["ids"] = (2, 5), b.one_of(TensorProto.INT64, TensorProto.INT32)
        b.node("Gather", [b.shared(out + "t", 10, 8), "ids"], out)
        return [2, 5, 8]
    if shape[1] < 2:
        return None
    b.node("Gather", [value, b.ints(out + "i", [1, 0])], out, axis=1)
    return [shape[0], 2, *shape[2:]]


def slices(b: Network, value: str, shape: Shape, out: str):
    if shape[-1] < 3:
        return None
    axis = len(shape) - 1
    if b.opset < 10:
        b.node("Slice", [value], out, starts=[1], ends=[shape[-1]], axes=[axis])
    else:
        ends = {"s": 1, "e": shape[-1], "a": axis}
        b.node("Slice", [value, *(b.ints(out + key, [each]) for key, each in ends.items())], out)
    return [*shape[:-1], shape[-1] - 1]


def resize(b: Network, value: str, shape: Shape, out: str):
    if len(shape) != 4 or max(shape[2:]) > 8 or b.opset < 10:
        return None
    scales = b.constant(out + "s", [1, 1, 2, 2], np.float32)
    roi = [] if b.opset == 10 else ["" if b.opset >= 13 else b.constant(out + "r", [], np.float32)]
    b.node("Resize", [value, *roi, scales], out, mode=b.one_of("nearest", "linear"))
    return [*shape[:2], 2 * shape[2], 2 * shape[3]]


def normalization(b: Network, value: str, shape: Shape, out: str):
    if len(shape) < 3:
        return None
    kind = b.one_of("InstanceNormalization", "BatchNormalization", "LayerNormalization")
    if kind == "LayerNormalization":
        if b.opset < 17:
            return None
        parts = [b.shared(out + "g", shape[-1])] + ([b.shared(out + "b", shape[-1])] if b.chance(0.7) else [])
    else:
        parts = [b.shared(out + "g", shape[1]), b.shared(out + "b", shape[1])]
    if kind == "BatchNormalization":
        parts += [b.constant(out + "m", np.zeros(shape[1], "f")), b.constant(out + "v", np.full(shape[1], 0.8, "f"))]
    b.node(kind, [value, *parts], out)
    return shape


def where(b: Network, value: str, shape: Shape, out: str):
    if b.opset < 9:
        return None
    b.node("Greater", [value, b.constant(out + "h", np.float32(0.1))], out + "m")
    b.types[out + "m"] = TensorProto.BOOL
    same = [name for name, found in b.values if found == shape]
    other = b.one_of(*same, b.shared(out + "o", shape[-1]))
    b.node("Where", [out + "m", *([value, other] if b.chance(0.5) else [other, value])], out)
    return shape


def odd_results(b: Network, value: str, shape: Shape, out: str):
    kind = b.one_of("ArgMax", "TopK", "CumSum", "ReduceMean")
    if kind == "ArgMax":
        b.node("ArgMax", [value], out + "n", axis=1)
        b.types[out + "n"] = TensorProto.INT64
        return None
    if kind == "TopK":
        inputs, attributes = ([b.ints(out + "k", [2])], {}) if b.opset >= 10 else ([], {"k": 2})
        if shape[-1] < 2:
            return None
        b.node("TopK", [value, *inputs], [out, out + "n"], **attributes)
        b.types[out + "n"] = TensorProto.INT64
        return [*shape[:-1], 2]
    if kind == "CumSum" and b.opset >= 11:
        b.node("CumSum", [value, b.constant(out + "a", 1, np.int64)], out)
        return shape
    inputs, attributes = b.as_input_or_attribute(18, "axes", out + "a", [-1] if b.opset >= 11 else [len(shape) - 1])
    b.node("ReduceMean", [value, *inputs], out, keepdims=1, **attributes)
    return [*shape[:-1], 1]


def _value(name: str, shape: Shape | None, kind: int = FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def branches(b: Network, value: str, shape: Shape, out: str):
    if "flag" not in b.inputs:
        b.inputs["flag"], b.types["flag"] = (), TensorProto.BOOL
    outer = b.shared(out + "w", shape[-1], 6)

    def branch(name: str, weight: str | None):
        own = Builder(b.opset, len(name))
        inputs = [value, weight or own.weight(out + name, shape[-1], 6)]
        product = own.node("MatMul", inputs, out + name + "p", out + name + "n")
        own.node("Relu", [product], out + name + "r", out + name + "q")
        return helper.make_graph(own.nodes, name, [], [_value(out + name + "r", [*shape[:-1], 6])], own.tensors)

    b.node("If", ["flag"], out, then_branch=branch("then", None), else_branch=branch("other", outer))
    return [*shape[:-1], 6]


def loop(b: Network, value: str, shape: Shape, out: str):
    if b.opset < 13:
        return None
    own = Builder(b.opset, len(out))
    own.node("Identity", [out + "more"], out + "still", out + "kn")
    product = own.node("MatMul", [out + "state", own.weight(out + "v", shape[-1], shape[-1])], out + "p", out + "mn")
    own.node("Tanh", [product], out + "next", out + "tn")
    given = [_value(out + "turn", [], TensorProto.INT64), _value(out + "more", [], TensorProto.BOOL)]
    given.append(_value(out + "state", shape))
    made = [_value(out + "still", [], TensorProto.BOOL), _value(out + "next", shape)]
    body = helper.make_graph(own.nodes, "body", given, made, own.tensors)
    b.node("Loop", [b.constant(out + "n", 2, np.int64), "", value], out, body=body)
    return shape


MAKERS = (
    conv, conv, conv, conv_transpose, matmul, matmul, matmul, gemm, gemm, lstm, attention, attention_by_products, pool,
    pool, pointwise, pointwise, clip, binary, binary, binary, concat, transpose, reshape, pad, split, gather, slices,
    resize, normalization, where, odd_results, branches, loop, *FURTHER,
)  # fmt: skip


def drawn_network(random: np.random.Generator, opset: int | None = None) -> onnx.ModelProto:
    """A model of up to twelve nodes of any operators; opset 7 to 28 where none is given."""
    chosen = opset or int(random.choice([*range(7, 29), 13, 17, 17, 18, 21, 21]))
    b = Network(random, chosen)
    shape = b.one_of([1, 4, 8, 8], [1, 4, 8, 8], [2, 6, 16], [2, 4, 12])
    b.inputs["x"] = tuple(shape)
    b.values.append(("x", shape))
    for place in range(int(random.integers(2, 12))):
        value, found = b.values[int(random.integers(max(0, len(b.values) - 3), len(b.values)))]
        maker = MAKERS[int(random.integers(len(MAKERS)))]
        made = maker(b, value, list(found), f"t{place}")
        if made is not None and len(made) > 1:
            b.values.append((f"t{place}", made))
    return _finished(b)


def _finished(b: Network) -> onnx.ModelProto:
    """The model: what nobody reads is a result, and now and then something that is read, too."""
    if not any(node.op_type != "Constant" for node in b.nodes):
        b.node("Relu", ["x"], "t")
    if b.chance(0.1):
        for node in b.nodes:
            node.name = ""
    read = {name for node in b.nodes for name in node.input}
    for node in b.nodes:
        read.update(name for each in node.attribute for inner in each.g.node for name in inner.input)
    made = [name for node in b.nodes if node.op_type != "Constant" for name in node.output]
    results = [name for name in made if name not in read or b.chance(0.05)]
    if "x" not in read:
        b.node("Identity", ["x"], "kept")
        results.append("kept")
    model = b.model(b.inputs, results, b.types)
    model.ir_version = 8 if b.opset < 19 else 10
    _keep_used_tensors(model)
    if b.chance(0.1):
        _take_weights_as_inputs(model)
    if b.chance(0.06):
        model = in_halves(model)
    if b.chance(0.2):
        return model
    return onnx.shape_inference.infer_shapes(model)


def _keep_used_tensors(model: onnx.ModelProto) -> None:
    """Leave out initializers that nothing reads: makers draw some before they give up."""
    read = {name for node in model.graph.node for name in node.input}
    for node in model.graph.node:
        read.update(name for each in node.attribute for inner in each.g.node for name in inner.input)
    kept = [each for each in model.graph.initializer if each.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _take_weights_as_inputs(model: onnx.ModelProto) -> None:
    """List initializers as inputs, too, as files before IR version 4 do."""
    for tensor in model.graph.initializer:
        model.graph.input.append(_value(tensor.name, list(tensor.dims), tensor.data_type))


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The initializers of floats of a model."""
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer if each.data_type == FLOAT}
