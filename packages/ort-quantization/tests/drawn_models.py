"""Random float models of the operators that are quantized, and random choices for quantizing them."""

from __future__ import annotations

import numpy as np
import onnx
from float_models import Builder

Value = tuple[str, list[int]]


def drawn_model(random: np.random.Generator) -> onnx.ModelProto:
    """A model of up to ten nodes, one behind another with branches, on images or on rows."""
    b = Builder(int(random.choice([13, 15, 17, 18, 19, 21])), int(random.integers(1 << 20)))
    values: list[Value] = [("x", [1, 4, 8, 8] if random.random() < 0.6 else [2, 6, 16])]
    for place in range(int(random.integers(3, 11))):
        name, shape = values[int(random.integers(max(0, len(values) - 3), len(values)))]
        maker = MAKERS[int(random.integers(len(MAKERS)))]
        made = maker(b, random, name, shape, f"t{place}")
        if made is not None:
            values.append((f"t{place}", made))
    if not b.nodes:
        b.node("Relu", ["x"], "t")
    read = {name for node in b.nodes for name in node.input}
    results = [name for node in b.nodes for name in node.output if name not in read]
    model = b.model({"x": tuple(values[0][1])}, results)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def conv(b, random, value, shape, out):
    if len(shape) != 4:
        return None
    count, groups = int(random.choice([4, 8])), int(random.choice([1, shape[1]]))
    count = count if count % groups == 0 else shape[1]
    inputs = [value, b.weight(out + "w", count, shape[1] // groups, 3, 3, spread=2.0)]
    inputs += [b.weight(out + "b", count)] if random.random() < 0.7 else []
    b.node("Conv", inputs, out, pads=[1, 1, 1, 1], group=groups)
    return [1, count, *shape[2:]]


def pool(b, random, value, shape, out):
    if len(shape) != 4 or min(shape[2:]) < 2:
        return None
    b.node(str(random.choice(["MaxPool", "AveragePool"])), [value], out, kernel_shape=[2, 2])
    return [*shape[:2], shape[2] - 1, shape[3] - 1]


def global_pool(b, random, value, shape, out):
    if len(shape) != 4:
        return None
    b.node("GlobalAveragePool", [value], out)
    return [*shape[:2], 1, 1]


def resize(b, random, value, shape, out):
    if len(shape) != 4 or max(shape[2:]) > 8:
        return None
    b.node("Resize", [value, "", b.constant(out + "s", [1, 1, 2, 2], np.float32)], out, mode="nearest")
    return [*shape[:2], 2 * shape[2], 2 * shape[3]]


def matmul(b, random, value, shape, out):
    columns = int(random.choice([5, 16]))
    b.node("MatMul", [value, b.weight(out + "w", shape[-1], columns)], out)
    return [*shape[:-1], columns]


def gemm(b, random, value, shape, out):
    is_turned = int(random.integers(2))
    rows = int(np.prod(shape[1:]))
    b.node("Flatten", [value], out + "f")
    inputs = [out + "f", b.weight(out + "w", *((7, rows) if is_turned else (rows, 7))), b.weight(out + "b", 7)]
    b.node("Gemm", inputs, out, transB=is_turned)
    return [shape[0], 7]


def pointwise(b, random, value, shape, out):
    b.node(str(random.choice(["Sigmoid", "LeakyRelu", "Tanh", "Softmax"])), [value], out)
    return shape


def constant_operand(b, random, value, shape, out):
    b.node(str(random.choice(["Add", "Mul"])), [value, b.weight(out + "c", shape[-1])], out)
    return shape


def twice(b, random, value, shape, out):
    b.node("Concat", [value, value], out, axis=1)
    return [shape[0], 2 * shape[1], *shape[2:]]


def transpose(b, random, value, shape, out):
    order = [0, *(int(each) + 1 for each in random.permutation(len(shape) - 1))]
    b.node("Transpose", [value], out, perm=order)
    return [shape[each] for each in order]


def pad(b, random, value, shape, out):
    ends = [0] * (len(shape) - 1) + [1] + [0] * len(shape)
    b.node("Pad", [value, b.constant(out + "p", ends, np.int64)], out, mode=str(random.choice(["constant", "edge"])))
    return [*shape[:-1], shape[-1] + 1]


def gather(b, random, value, shape, out):
    if shape[1] < 2:
        return None
    b.node("Gather", [value, b.constant(out + "i", [1, 0], np.int64)], out, axis=1)
    return [shape[0], 2, *shape[2:]]


def instance_normalization(b, random, value, shape, out):
    if len(shape) < 3:
        return None
    b.node("InstanceNormalization", [value, b.weight(out + "g", shape[1]), b.weight(out + "b", shape[1])], out)
    return shape


MAKERS = (
    conv, conv, pool, global_pool, resize, matmul, gemm, pointwise, constant_operand, twice, transpose, pad, gather,
    instance_normalization,
)  # fmt: skip

FLAGS = (
    "ActivationSymmetric", "WeightSymmetric", "DedicatedQDQPair", "AddQDQPairToWeight", "ForceQuantizeNoInputCheck",
    "MatMulConstBOnly", "CalibTensorRangeSymmetric", "CalibMovingAverage", "QuantizeBias",
)  # fmt: skip


def drawn_choices(random: np.random.Generator) -> dict[str, object]:
    """A way of quantizing (``qdq``, ``qoperator`` or ``dynamic``), types by name, and extra options."""
    way = str(random.choice(["qdq", "qdq", "qoperator", "dynamic"]))
    types = [("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8")]
    types += [("QUInt16", "QInt8"), ("QInt16", "QInt8")] if way == "qdq" else []
    activations, weights = types[int(random.integers(len(types)))]
    return {
        "way": way, "activations": activations, "weights": weights, "per_channel": bool(random.random() < 0.4),
        "extra": {name: bool(random.random() < 0.7) for name in FLAGS if random.random() < 0.2},
    }  # fmt: skip
