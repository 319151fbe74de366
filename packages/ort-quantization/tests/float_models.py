"""Small float models of every kind that is quantized, with inputs for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
MICROSOFT = "com.microsoft"


class Builder:
    """Collects nodes and tensors of a model; random weights are the same in every run."""

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int, dtype: type = np.float32, spread: float = 1.0) -> str:
        values = (self.random.normal(size=shape) * spread / np.sqrt(max(shape[-1:], default=1))).astype(dtype)
        return self.constant(name, values)

    def constant(self, name: str, values: object, dtype: type | None = None) -> str:
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, op_type: str, inputs: list[str], outputs: str | list[str], name: str | None = None, **attributes):
        results = [outputs] if isinstance(outputs, str) else outputs
        label = f"{op_type}_{len(self.nodes)}" if name is None else name
        self.nodes.append(helper.make_node(op_type, inputs, results, label, **attributes))
        return results[0]

    def model(self, inputs: dict[str, tuple], outputs: list[str], types: dict[str, int] | None = None):
        types = types or {}
        graph = helper.make_graph(
            self.nodes,
            "float",
            [helper.make_tensor_value_info(name, types.get(name, FLOAT), shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, types.get(name, FLOAT), None) for name in outputs],
            self.tensors,
        )
        imports = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self.nodes):
            imports.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def matmul(opset: int = 17):
    b = Builder(opset)
    hidden = b.node("MatMul", ["x", b.weight("w", 16, 24)], "h")
    hidden = b.node("Relu", [hidden], "r")
    b.node("MatMul", [hidden, b.weight("v", 24, 5)], "y")
    return b.model({"x": ("n", 16)}, ["y"])


def shared_input():
    b = Builder()
    parts = [b.node("MatMul", ["x", b.weight(f"w{i}", 12, 8)], f"p{i}", name="") for i in range(3)]
    b.node("Add", [b.node("Add", parts[:2], "s"), parts[2]], "y")
    return b.model({"x": (3, 12)}, ["y"])


def matmul_of_values():
    b = Builder()
    first = b.node("MatMul", ["x", b.weight("w", 8, 8)], "q")
    b.node("MatMul", [first, "z"], "y")
    return b.model({"x": (2, 4, 8), "z": (2, 8, 4)}, ["y"])


def batched_weights():
    b = Builder()
    b.node("MatMul", ["x", b.weight("w", 3, 8, 6)], "y")
    return b.model({"x": (3, 5, 8)}, ["y"])


def gemm(has_factors: bool = True):
    b = Builder()
    factors = {"alpha": 0.5, "beta": 2.0} if has_factors else {}
    hidden = b.node("Gemm", ["x", b.weight("w", 24, 16), b.weight("b", 24)], "h", transB=1)
    hidden = b.node("Relu", [hidden], "r")
    hidden = b.node("Gemm", [hidden, b.weight("v", 24, 10), b.weight("c", 10)], "g")
    hidden = b.node("Gemm", [hidden, b.weight("u", 10, 7), b.weight("d", 7)], "k", **factors)
    b.node("Gemm", [hidden, b.weight("t", 4, 7)], "y", transB=1)
    return b.model({"x": (6, 16)}, ["y"])


def tied_gemms():
    b = Builder()
    w = b.weight("w", 9, 9)
    first = b.node("Gemm", ["x", w, b.weight("b", 9)], "h", transB=1)
    second = b.node("Gemm", [first, w, b.weight("c", 9)], "g", transB=1)
    b.node("MatMul", [second, w], "y")
    return b.model({"x": (2, 9)}, ["y"])


def conv(opset: int = 17):
    b = Builder(opset)
    hidden = b.node("Conv", ["x", b.weight("w", 8, 3, 3, 3), b.weight("b", 8)], "h", pads=[1, 1, 1, 1])
    hidden = b.node("Relu", [hidden], "r")
    hidden = b.node("Conv", [hidden, b.weight("v", 8, 1, 3, 3)], "g", group=8, strides=[2, 2])
    b.node("Conv", [hidden, b.weight("u", 4, 8, 1, 1), b.weight("c", 4)], "y", name="")
    return b.model({"x": (1, 3, 11, 11)}, ["y"])


def conv1d():
    b = Builder()
    b.node("Conv", ["x", b.weight("w", 5, 4, 3), b.weight("b", 5)], "y", pads=[2, 0], dilations=[1])
    return b.model({"x": (2, 4, 9)}, ["y"])


def embedding():
    b = Builder()
    words = b.node("Gather", [b.weight("table", 30, 12), "ids"], "e")
    hidden = b.node("MatMul", [words, b.weight("w", 12, 12)], "h")
    turned = b.node("Transpose", [words], "t", perm=[0, 2, 1])
    hidden = b.node("Add", [hidden, words], "s")
    b.node("MatMul", [hidden, turned], "y")
    return b.model({"ids": (2, 5)}, ["y", "e"], {"ids": TensorProto.INT64})


def tied_embedding():
    b = Builder()
    table = b.weight("table", 30, 12)
    words = b.node("Gather", [table, "ids"], "e")
    turned = b.node("Transpose", [table], "t", perm=[1, 0])
    b.node("MatMul", [words, turned], "y")
    return b.model({"ids": (2, 5)}, ["y"], {"ids": TensorProto.INT64})


def lstm(directions: int = 1, states: bool = False):
    b = Builder()
    hidden, size = 6, 5
    inputs = ["x", b.weight("w", directions, 4 * hidden, size), b.weight("r", directions, 4 * hidden, hidden)]
    inputs.append(b.weight("b", directions, 8 * hidden))
    if states:
        inputs += ["", b.weight("h0", directions, 2, hidden), b.weight("c0", directions, 2, hidden)]
    direction = "bidirectional" if directions == 2 else "forward"
    b.node("LSTM", inputs, ["y", "yh", "yc"], hidden_size=hidden, direction=direction)
    return b.model({"x": (4, 2, size)}, ["y", "yh", "yc"])


def attention():
    b = Builder()
    inputs = ["x", b.weight("w", 16, 48), b.weight("b", 48), "mask"]
    hidden = b.node("Attention", inputs, "h", domain=MICROSOFT, num_heads=2)
    b.node("MatMul", [hidden, b.weight("v", 16, 4)], "y")
    return b.model({"x": (2, 3, 16), "mask": (2, 3)}, ["y"], {"mask": TensorProto.INT32})


def embed_layer_norm():
    b = Builder()
    tables = [b.weight("words", 20, 8), b.weight("places", 6, 8), b.weight("segments", 2, 8)]
    scales = [b.constant("gamma", np.ones(8, np.float32)), b.weight("beta", 8)]
    b.node("EmbedLayerNormalization", ["ids", "kinds", *tables, *scales], ["y", "m"], domain=MICROSOFT)
    types = {"ids": TensorProto.INT32, "kinds": TensorProto.INT32, "m": TensorProto.INT32}
    return b.model({"ids": (2, 4), "kinds": (2, 4)}, ["y"], types)


def branches():
    """An If whose branches multiply by weights of their own, by one of the graph around, and a value of it."""
    b = Builder()
    outer = b.weight("outer", 6, 6)
    hidden = b.node("MatMul", ["x", b.weight("w", 6, 6)], "h")

    def branch(name: str, weight: str):
        inner = Builder(seed=len(name))
        if weight != outer:
            inner.weight(weight, 6, 6)
        node = helper.make_node("MatMul", [hidden, weight], [f"{name}_y"], f"{name}_product")
        given = helper.make_tensor_value_info(f"{name}_y", FLOAT, [3, 6])
        return helper.make_graph([node], name, [], [given], inner.tensors)

    b.node("If", ["flag"], "y", then_branch=branch("then", "inner"), else_branch=branch("other", outer))
    return b.model({"x": (3, 6), "flag": ()}, ["y"], {"flag": TensorProto.BOOL})


DYNAMIC: dict[str, Callable[[], onnx.ModelProto]] = {
    "matmul": matmul,
    "matmul in opset 10": lambda: matmul(10),
    "matmul in opset 9": lambda: matmul(9),
    "matmul in opset 21": lambda: matmul(21),
    "shared input": shared_input,
    "values times values": matmul_of_values,
    "batched weights": batched_weights,
    "gemm": gemm,
    "tied gemms": tied_gemms,
    "conv": conv,
    "conv in opset 10": lambda: conv(10),
    "conv1d": conv1d,
    "embedding": embedding,
    "tied embedding": tied_embedding,
    "lstm": lstm,
    "lstm of two directions": lambda: lstm(2),
    "lstm with states": lambda: lstm(1, True),
    "attention": attention,
    "embed layer norm": embed_layer_norm,
    "branches": branches,
}


def feeds_of(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Random inputs for a model: unnamed sizes are 4, integers lie below 2."""
    random = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        shape = [size.dim_value or 4 for size in value.type.tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        numbers = random.normal(size=shape) if kind.kind == "f" else random.integers(0, 2, shape)
        found[value.name] = np.asarray(numbers).astype(kind)
    return found
