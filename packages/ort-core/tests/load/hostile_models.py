"""Small model files whose honest evaluation would take more time or memory than there is.

Each builder returns nodes over the input ``x``; ``HOSTILE`` names them. Where the load may refuse one, it must do so
with an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper


@dataclass
class Graph:
    """Nodes and constants of a model with the input ``x`` and the output ``y``, or several of the same types."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    functions: list[FunctionProto] = field(default_factory=list)
    shape: tuple[int | str, ...] = (3, 4)
    inputs: list[str] = field(default_factory=lambda: ["x"])
    outputs: list[str] = field(default_factory=lambda: ["y"])

    def node(self, op_type: str, inputs: str, outputs: str, **attributes: object) -> None:
        """Add a node; names are separated by spaces."""
        self.nodes.append(helper.make_node(op_type, inputs.split(), outputs.split(), **attributes))

    def constant(self, name: str, values: object) -> None:
        """Add an initializer."""
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))

    def proto(self) -> bytes:
        """Return the model file."""
        imports = [
            helper.make_opsetid(domain, version) for domain, version in (("", 20), ("own", 1), ("ai.onnx.ml", 3))
        ]
        graph = helper.make_graph(
            self.nodes, "hostile",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shape) for name in self.inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs], self.constants,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=self.functions)
        return model.SerializeToString()


def _of_shape(op_type: str, count: int, **attributes: object) -> Graph:
    """Combine a shape with itself again and again."""
    graph = Graph(shape=("a", "b"))
    graph.node("Shape", "x", "s0")
    for i in range(count):
        graph.node(op_type, f"s{i} s{i}", f"s{i + 1}", **attributes)
    graph.node("Cast", f"s{count}", "y", to=TensorProto.FLOAT)
    return graph


def _numbers_of(dtype: int) -> Graph:
    """Square numbers that overflow each type of elements."""
    graph = Graph()
    graph.node("Shape", "x", "t")
    graph.node("Cast", "t", "s0", to=dtype)
    for i in range(60):
        graph.node("Mul", f"s{i} s{i}", f"s{i + 1}")
    graph.node("Cast", "s60", "k", to=TensorProto.INT64)
    graph.node("ConstantOfShape", "k", "y")
    return graph


def _two_sizes(op_types: tuple[str, str]) -> Graph:
    """Let two sizes grow by each other."""
    graph = Graph(shape=("a", "b"))
    graph.constant("swap", np.int64([1, 0]))
    graph.node("Shape", "x", "s0")
    graph.node("Gather", "s0 swap", "t0")
    for i in range(60):
        graph.node(op_types[0], f"s{i} t{i}", f"s{i + 1}")
        graph.node(op_types[1], f"s{i} t{i}", f"t{i + 1}")
    graph.node("ConstantOfShape", "t60", "y")
    return graph


def _quotients() -> Graph:
    graph = Graph(shape=("a", "b"))
    graph.constant("one", np.int64(1))
    graph.constant("two", np.int64(2))
    graph.node("Shape", "x", "s0")
    for i in range(150):
        graph.node("Add", f"s{i} one", f"a{i}")
        graph.node("Div", f"a{i} two", f"s{i + 1}")
    graph.node("ConstantOfShape", "s150", "y")
    return graph


def _powers() -> Graph:
    graph = Graph(shape=("a", "b"))
    graph.constant("eight", np.int64(8))
    graph.node("Shape", "x", "s0")
    for i in range(40):
        graph.node("Pow", f"s{i} eight", f"s{i + 1}")
    graph.node("ConstantOfShape", "s40", "y")
    return graph


def _many_elements() -> Graph:
    """Polynomials over eight sizes, 128 of them in each value."""
    numbers = np.random.default_rng(0).integers(0, 8, (2, 128))
    graph = Graph(shape=tuple("abcdefgh"))
    graph.constant("p", numbers[0])
    graph.constant("q", numbers[1])
    graph.node("Shape", "x", "s")
    graph.node("Gather", "s p", "s0")
    graph.node("Gather", "s q", "t")
    for i in range(40):
        graph.node("Add", f"s{i} t", f"a{i}")
        graph.node("Mul", f"a{i} a{max(0, i - 1)}", f"m{i}")
        graph.node("Min", f"m{i} a{i}", f"s{i + 1}")
    graph.node("Cast", "s40", "y", to=TensorProto.FLOAT)
    return graph


def _tiled_shape() -> Graph:
    graph = Graph(shape=("a",))
    graph.constant("ones", np.ones(31, np.int64))
    graph.constant("times", np.full(31, 128))
    graph.node("Shape", "x", "s")
    graph.node("Reshape", "s ones", "r")
    graph.node("Tile", "r times", "t")
    graph.node("Cast", "t", "y", to=TensorProto.FLOAT)
    return graph


def _outer_products() -> Graph:
    graph = Graph(shape=("a",))
    graph.constant("first", np.int64([0]))
    graph.constant("second", np.int64([1]))
    graph.constant("flat", np.int64([-1]))
    graph.node("Identity", "x", "v0")
    for i in range(20):
        graph.node("Unsqueeze", f"v{i} first", f"row{i}")
        graph.node("Unsqueeze", f"v{i} second", f"column{i}")
        graph.node("Mul", f"row{i} column{i}", f"outer{i}")
        graph.node("Reshape", f"outer{i} flat", f"v{i + 1}")
    graph.node("ReduceSum", "v20", "y")
    return graph


def _joined(count: int) -> Graph:
    graph = Graph(shape=("a", "b"))
    graph.node("Identity", "x", "v0")
    for i in range(count):
        graph.node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=i % 2)
    graph.node("ReduceSum", f"v{count}", "y")
    return graph


def _with_constant(graph: Graph, name: str) -> Graph:
    graph.node("ReduceSum", name, "sum")
    graph.node("Add", "x sum", "y")
    return graph


def _joined_constants() -> Graph:
    graph = Graph()
    graph.constant("c0", np.float32([1, 2]))
    for i in range(40):
        graph.node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0)
    return _with_constant(graph, "c40")


def _range() -> Graph:
    graph = Graph()
    for name, value in (("start", 0), ("limit", 2.0**50), ("delta", 1)):
        graph.constant(name, np.float32(value))
    graph.node("Range", "start limit delta", "r")
    return _with_constant(graph, "r")


def _fills() -> Graph:
    """Two hundred constants of four megabytes."""
    graph = Graph()
    graph.constant("size", np.int64([1 << 20]))
    graph.constant("zero", np.int64(0))
    for i in range(200):
        graph.node("ConstantOfShape", "size", f"f{i}", value=helper.make_tensor("v", TensorProto.FLOAT, [1], [i % 4]))
        graph.node("Transpose", f"f{i}", f"t{i}")
        graph.node("Gather", f"t{i} zero", f"g{i}")
    graph.node("Sum", " ".join(f"g{i}" for i in range(200)), "all")
    return _with_constant(graph, "all")


def _strings() -> Graph:
    graph = Graph()
    graph.constant("c0", np.array("ab", object))
    for i in range(60):
        graph.node("StringConcat", f"c{i} c{i}", f"c{i + 1}")
    graph.node("Equal", "c60 c60", "same")
    graph.node("Cast", "same", "f", to=TensorProto.FLOAT)
    return _with_constant(graph, "f")


def _calls_twice() -> Graph:
    """Forty functions, each of which calls the next one twice."""
    graph = Graph()
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    for i in range(40):
        calls = [helper.make_node(f"F{i + 1}", [n], [m], domain="own") for n, m in (("a", "t"), ("t", "b"))]
        graph.functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, imports))
    last = [helper.make_node("Tanh", ["a"], ["b"])]
    graph.functions.append(helper.make_function("own", "F40", ["a"], ["b"], last, imports))
    graph.node("F0", "x", "y", domain="own")
    return graph


def _nested_loops(depth: int) -> Graph:
    """A loop in a loop, whose state grows in the innermost one."""
    float_, boolean = TensorProto.FLOAT, TensorProto.BOOL

    def body(level: int) -> object:
        names = [f"{n}{level}" for n in ("i", "c", "s", "again", "z")]
        inner = Graph()
        inner.node("Identity", names[1], names[3])
        if level:
            inner.nodes.append(helper.make_node("Loop", ["three", "", names[2]], [names[4]], body=body(level - 1)))
        else:
            inner.node("Concat", f"{names[2]} {names[2]}", names[4], axis=0)
        kinds = (TensorProto.INT64, boolean, float_, boolean, float_)
        infos = [
            helper.make_tensor_value_info(n, k, None if k == float_ else []) for n, k in zip(names, kinds, strict=True)
        ]
        return helper.make_graph(inner.nodes, "body", infos[:3], infos[3:])

    graph = Graph()
    graph.constant("three", np.int64(3))
    graph.nodes.append(helper.make_node("Loop", ["three", "", "x"], ["y"], body=body(depth)))
    return graph


def _wide_sum() -> Graph:
    graph = Graph()
    for i in range(1500):
        graph.node("Sin" if i % 2 else "Tanh", "x", f"w{i}")
    graph.node("Sum", " ".join(f"w{i}" for i in range(1500)), "y")
    return graph


def _epilogue() -> Graph:
    """A product with fifteen hundred elementwise nodes behind it."""
    graph = Graph()
    graph.constant("w", np.eye(4, dtype=np.float32))
    graph.node("MatMul", "x w", "v0")
    for i in range(1500):
        graph.node("Abs" if i % 2 else "Neg", f"v{i}", f"v{i + 1}")
    graph.node("Identity", "v1500", "y")
    return graph


def _ways(last: str) -> Graph:
    """Halves that layers of extremes move: each reads most of the layer before, so that there are millions of ways."""
    graph, width, is_cast = Graph(shape=(64, 64)), 9, last == "Sum"
    graph.node("Cast", "x", "half", to=TensorProto.FLOAT16)
    if is_cast:
        graph.node("Mul", "half half", "square")
        graph.node("Cast", "square", "wide", to=TensorProto.FLOAT)
    for i in range(width):
        graph.constant(f"c{i}", np.full(64, i / width, np.float32 if is_cast else np.float16))
        graph.node("Max", f"{'wide' if is_cast else 'half'} c{i}", f"m0_{i}")
    for layer in range(7 if is_cast else 6):
        for i in range(width):
            others = [f"m{layer}_{k}" for k in range(width) if k != i]
            graph.node("Min" if layer % 2 else "Max", " ".join(others), f"m{layer + 1}_{i}")
    results = [f"m{7 if is_cast else 6}_{i}" for i in range(width)]
    if is_cast:
        graph.node("Sum", " ".join(results), "y")
    else:
        graph.node(last, results[0], "z")
        graph.node("Cast", "z", "y", to=TensorProto.FLOAT)
    return graph


HOSTILE: dict[str, Callable[[], Graph]] = {
    "products of shapes": lambda: _of_shape("Mul", 60),
    "sums of shapes": lambda: _of_shape("Add", 80),
    "joined shapes": lambda: _of_shape("Concat", 60, axis=0),
    "int32 numbers": lambda: _numbers_of(TensorProto.INT32),
    "uint8 numbers": lambda: _numbers_of(TensorProto.UINT8),
    "double numbers": lambda: _numbers_of(TensorProto.DOUBLE),
    "two sizes, products": lambda: _two_sizes(("Add", "Mul")),
    "two sizes, extremes": lambda: _two_sizes(("Max", "Add")),
    "quotients": _quotients,
    "powers": _powers,
    "many elements": _many_elements,
    "tiled shape": _tiled_shape,
    "outer products": _outer_products,
    "joined values": lambda: _joined(60),
    "joined constants": _joined_constants,
    "range": _range,
    "fills": _fills,
    "strings": _strings,
    "calls twice": _calls_twice,
    "nested loops": lambda: _nested_loops(4),
    "deeply nested loops": lambda: _nested_loops(20),
    "wide sum": _wide_sum,
    "epilogue": _epilogue,
    "ways from a cast": lambda: _ways("Sum"),
    "ways to a rank": lambda: _ways("Hardmax"),
}
