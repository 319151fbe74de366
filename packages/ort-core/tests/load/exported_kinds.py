"""Models of any number of nodes with the mixes of real exports: layers with their shape computation, heads, caches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from growing_models import between
from hostile_models import Graph
from onnx import TensorProto, helper


def _weight(graph: Graph, name: str, *shape: int, seed: int = 0) -> str:
    graph.constant(name, (np.random.default_rng(seed).random(shape, np.float32) - 0.5) / 4)
    return name


def _numbers(graph: Graph, **values: object) -> None:
    for name, value in values.items():
        graph.constant(name, np.int64(value) if not isinstance(value, float) else np.float32(value))


def _normalized(graph: Graph, source: str, result: str, name: str, width: int) -> None:
    """Write a layer normalization node by node."""
    graph.constant(f"{name}w", np.full(width, 1.5, np.float32))
    graph.constant(f"{name}b", np.full(width, 0.25, np.float32))
    graph.node("ReduceMean", f"{source} last", f"{name}m")
    graph.node("Sub", f"{source} {name}m", f"{name}d")
    graph.node("Pow", f"{name}d two", f"{name}p")
    graph.node("ReduceMean", f"{name}p last", f"{name}v")
    graph.node("Add", f"{name}v epsilon", f"{name}e")
    graph.node("Sqrt", f"{name}e", f"{name}s")
    graph.node("Div", f"{name}d {name}s", f"{name}q")
    graph.node("Mul", f"{name}q {name}w", f"{name}r")
    graph.node("Add", f"{name}r {name}b", result)


def _sizes(graph: Graph, source: str, name: str, ends: str) -> str:
    """Write the shape of a Reshape as tracing exporters do: batch and length of a tensor, then fixed sizes."""
    for axis in (0, 1):
        graph.node("Shape", source, f"{name}s{axis}")
        graph.node("Gather", f"{name}s{axis} i{axis}", f"{name}g{axis}")
        graph.node("Unsqueeze", f"{name}g{axis} l0", f"{name}u{axis}")
    graph.node("Concat", f"{name}u0 {name}u1 {ends}", f"{name}k", axis=0)
    return f"{name}k"


def transformer(count: int) -> Graph:
    """Layers of attention with per-layer shape computation, 100 nodes each."""
    graph, width = Graph(shape=("batch", "length", 16)), 16
    _numbers(graph, i0=0, i1=1, l0=[0], last=[-1], heads=[4], four=[4], wide=[16], two=2.0, epsilon=1e-5, half=0.5)
    _numbers(graph, root=1.4142, one=1.0, scale=2.0)
    for i in range(max(count // 78, 1)):
        source = f"v{i}"
        _normalized(graph, source, f"n{i}", f"n{i}", width)
        for part in "qkv":
            graph.node("MatMul", f"n{i} {_weight(graph, f'w{part}{i}', width, width, seed=i)}", f"m{part}{i}")
            graph.node("Add", f"b{part}{i} m{part}{i}", f"a{part}{i}")
            _weight(graph, f"b{part}{i}", width, seed=i)
            shape = _sizes(graph, f"a{part}{i}", f"z{part}{i}", "heads four")
            graph.node("Reshape", f"a{part}{i} {shape}", f"r{part}{i}")
            graph.node("Transpose", f"r{part}{i}", f"t{part}{i}", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])
        graph.node("MatMul", f"tq{i} tk{i}", f"scores{i}")
        graph.node("Div", f"scores{i} scale", f"scaled{i}")
        graph.node("Softmax", f"scaled{i}", f"p{i}", axis=-1)
        graph.node("MatMul", f"p{i} tv{i}", f"c{i}")
        graph.node("Transpose", f"c{i}", f"ct{i}", perm=[0, 2, 1, 3])
        graph.node("Reshape", f"ct{i} {_sizes(graph, f'ct{i}', f'zo{i}', 'wide')}", f"o{i}")
        graph.node("MatMul", f"o{i} {_weight(graph, f'wo{i}', width, width, seed=i)}", f"out{i}")
        graph.node("Add", f"{source} out{i}", f"h{i}")
        _normalized(graph, f"h{i}", f"k{i}", f"k{i}", width)
        graph.node("MatMul", f"k{i} {_weight(graph, f'wu{i}', width, 32, seed=i)}", f"f{i}")
        graph.node("Div", f"f{i} root", f"fd{i}")
        graph.node("Erf", f"fd{i}", f"fe{i}")
        graph.node("Add", f"fe{i} one", f"fa{i}")
        graph.node("Mul", f"f{i} fa{i}", f"fm{i}")
        graph.node("Mul", f"fm{i} half", f"fh{i}")
        graph.node("MatMul", f"fh{i} {_weight(graph, f'wd{i}', 32, width, seed=i)}", f"fo{i}")
        graph.node("Add", f"h{i} fo{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{max(count // 78, 1)}")


def detection(count: int) -> Graph:
    """Boxes cut out of predictions class by class, decoded and put together; anchors as constants."""
    graph = Graph(shape=("batch", 40, 12))
    for i in range(6):
        _numbers(graph, **{f"c{i}": [i], f"i{i}": i})
    _numbers(graph, axis=[2], two=2.0, rows=[1], u2=[2])
    classes = max(count // 16, 1)
    for i in range(classes):
        graph.constant(f"from{i}", np.int64([i % 30]))
        graph.constant(f"to{i}", np.int64([i % 30 + 8]))
        graph.constant(f"anchor{i}", np.full((8, 1), 1 + i / classes, np.float32))
        graph.node("Slice", f"x from{i} to{i} rows", f"s{i}")
        for j in range(4):
            graph.node("Slice", f"s{i} c{j} c{j + 1} axis", f"p{i}_{j}")
        graph.node("Sigmoid", f"p{i}_0", f"x{i}")
        graph.node("Mul", f"x{i} two", f"xm{i}")
        graph.node("Exp", f"p{i}_2", f"w{i}")
        graph.node("Mul", f"w{i} anchor{i}", f"wa{i}")
        graph.node("Gather", f"s{i} i5", f"g{i}", axis=2)
        graph.node("Unsqueeze", f"g{i} u2", f"gu{i}")
        graph.node("Sub", f"xm{i} wa{i}", f"l{i}")
        graph.node("Add", f"xm{i} wa{i}", f"h{i}")
        graph.node("Concat", f"l{i} h{i} p{i}_1 p{i}_3 gu{i}", f"b{i}", axis=2)
        graph.node("Mul", f"b{i} two", f"out{i}")
    graph.node("Concat", " ".join(f"out{i}" for i in range(classes)), "y", axis=1)
    return graph


def unrolled(count: int) -> Graph:
    """An LSTM written out step by step, its results put together."""
    steps = max(count // 17, 2)
    graph = Graph(shape=("batch", steps, 8))
    _numbers(graph, middle=[1], sizes=[4, 4, 4, 4])
    for name, shape in (("wx", (8, 16)), ("wh", (4, 16)), ("b", (16,)), ("start", (1, 4))):
        _weight(graph, name, *shape)
    for i in range(steps):
        graph.constant(f"at{i}", np.int64(i))
        hidden, cell = (f"h{i}", f"c{i}") if i else ("start", "start")
        graph.node("Gather", f"x at{i}", f"x{i}", axis=1)
        graph.node("MatMul", f"x{i} wx", f"a{i}")
        graph.node("MatMul", f"{hidden} wh", f"r{i}")
        graph.node("Add", f"a{i} r{i}", f"s{i}")
        graph.node("Add", f"s{i} b", f"g{i}")
        graph.node("Split", f"g{i} sizes", f"i{i} f{i} o{i} n{i}", axis=1)
        for gate in "ifo":
            graph.node("Sigmoid", f"{gate}{i}", f"{gate}s{i}")
        graph.node("Tanh", f"n{i}", f"nt{i}")
        graph.node("Mul", f"fs{i} {cell}", f"k{i}")
        graph.node("Mul", f"is{i} nt{i}", f"l{i}")
        graph.node("Add", f"k{i} l{i}", f"c{i + 1}")
        graph.node("Tanh", f"c{i + 1}", f"t{i}")
        graph.node("Mul", f"os{i} t{i}", f"h{i + 1}")
        graph.node("Unsqueeze", f"h{i + 1} middle", f"u{i}")
    graph.node("Concat", " ".join(f"u{i}" for i in range(steps)), "y", axis=1)
    return graph


def squeezing_ifs(count: int) -> Graph:
    """`x.squeeze(d)` as exporters write it: an If on a size, over a value from outside, by turns."""
    graph = Graph(shape=("batch", "width"))
    _numbers(graph, one=1, i1=1, l1=[1])
    layers = max(count // 9, 1)
    for i in range(layers):
        graph.node("Unsqueeze", f"v{i} l1", f"u{i}")
        graph.node("Shape", f"v{i}", f"s{i}")
        graph.node("Gather", f"s{i} i1", f"g{i}")
        graph.node("Equal", f"g{i} one", f"e{i}")
        branches = {}
        for side, nodes in (
            ("then", [helper.make_node("Mul", [f"v{i}", f"v{i}"], [f"m{i}"]),
                      helper.make_node("Tanh", [f"m{i}"], [f"then{i}"])]),
            ("else", [helper.make_node("Squeeze", [f"u{i}", "l1"], [f"q{i}"]),
                      helper.make_node("Sigmoid", [f"q{i}"], [f"else{i}"])]),
        ):  # fmt: skip
            output = helper.make_tensor_value_info(f"{side}{i}", TensorProto.FLOAT, None)
            branches[f"{side}_branch"] = helper.make_graph(nodes, side, [], [output])
        graph.node("If", f"e{i}", f"r{i}", **branches)
        graph.node("Add", f"r{i} v{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{layers}")


def quantized_residuals(count: int) -> Graph:
    """Convolutions between quantized pairs, weights by channel and biases quantized, too, with residual sums."""
    graph = Graph(shape=(1, 4, 5, 5))
    graph.constant("scale", np.float32(0.02))
    graph.constant("zero", np.uint8(128))
    graph.constant("signed", np.zeros(4, np.int8))
    graph.constant("whole", np.zeros(4, np.int32))
    blocks = max(count // 16, 1)
    for i in range(blocks):
        random = np.random.default_rng(i)
        for j in (0, 1):
            graph.constant(f"w{i}_{j}", random.integers(-60, 60, (4, 4, 3, 3)).astype(np.int8))
            graph.constant(f"b{i}_{j}", random.integers(-60, 60, 4).astype(np.int32))
            graph.constant(f"s{i}_{j}", random.random(4, np.float32) / 50 + np.float32(0.001))
            graph.constant(f"t{i}_{j}", random.random(4, np.float32) / 2000 + np.float32(0.00001))
            source = f"v{i}" if j == 0 else f"q{i}_0"
            graph.node("QuantizeLinear", f"{source} scale zero", f"a{i}_{j}")
            graph.node("DequantizeLinear", f"a{i}_{j} scale zero", f"d{i}_{j}")
            graph.node("DequantizeLinear", f"w{i}_{j} s{i}_{j} signed", f"e{i}_{j}", axis=0)
            graph.node("DequantizeLinear", f"b{i}_{j} t{i}_{j} whole", f"f{i}_{j}", axis=0)
            graph.node("Conv", f"d{i}_{j} e{i}_{j} f{i}_{j}", f"c{i}_{j}", pads=[1, 1, 1, 1])
            graph.node("Relu", f"c{i}_{j}", f"q{i}_{j}")
        graph.node("QuantizeLinear", f"q{i}_1 scale zero", f"z{i}")
        graph.node("DequantizeLinear", f"z{i} scale zero", f"y{i}")
        graph.node("Add", f"y{i} d{i}_0", f"v{i + 1}")
    return between(graph, "v0", f"v{blocks}")


def caches(count: int) -> Graph:
    """A decoder's caches: for each layer two inputs and two outputs that grow by a row."""
    layers = max(count // 8, 1)
    graph = Graph(shape=("batch", 2, "past", 4))
    graph.inputs = ["x", *(f"past{i}_{p}" for i in range(layers) for p in "kv")]
    graph.outputs = ["y", *(f"present{i}_{p}" for i in range(layers) for p in "kv")]
    for i in range(layers):
        _weight(graph, f"w{i}", 4, 4, seed=i)
        graph.node("MatMul", f"v{i} w{i}", f"m{i}")
        graph.node("Concat", f"past{i}_k m{i}", f"present{i}_k", axis=2)
        graph.node("Concat", f"past{i}_v v{i}", f"present{i}_v", axis=2)
        graph.node("Transpose", f"present{i}_k", f"t{i}", perm=[0, 1, 3, 2])
        graph.node("MatMul", f"v{i} t{i}", f"s{i}")
        graph.node("Softmax", f"s{i}", f"p{i}")
        graph.node("MatMul", f"p{i} present{i}_v", f"o{i}")
        graph.node("Add", f"o{i} v{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{layers}")


def assigned_slices(count: int) -> Graph:
    """Assignments to slices as exporters write them: indices by Range and Expand, then ScatterND."""
    graph = Graph(shape=("rows", 8))
    _numbers(graph, i0=0, one=1, zero=0, l0=[0], l1=[1], pair=[-1, 1], minus=[-1])
    layers = max(count // 11, 1)
    for i in range(layers):
        graph.node("Shape", f"v{i}", f"s{i}")
        graph.node("Gather", f"s{i} i0", f"g{i}")
        graph.node("Range", f"zero g{i} one", f"r{i}")
        graph.node("Reshape", f"r{i} pair", f"k{i}")
        graph.node("Slice", f"v{i} l0 minus l0", f"a{i}")
        graph.node("Tanh", f"v{i}", f"t{i}")
        graph.node("ScatterND", f"v{i} k{i} t{i}", f"n{i}")
        graph.node("Expand", f"n{i} s{i}", f"e{i}")
        graph.node("Greater", f"e{i} t{i}", f"c{i}")
        graph.node("Where", f"c{i} e{i} t{i}", f"w{i}")
        graph.node("Add", f"w{i} v{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{layers}")


def columns(count: int) -> Graph:
    """A column of a table for each chain: looked up in a table of its own, joined, and multiplied."""
    features = max(count // 6, 2)
    graph = Graph(shape=("rows", features))
    random = np.random.default_rng(0)
    for i in range(features):
        graph.constant(f"at{i}", np.int64([i]))
        graph.constant(f"table{i}", random.random((5, 4), np.float32))
        graph.node("Gather", f"x at{i}", f"c{i}", axis=1)
        graph.node("Abs", f"c{i}", f"a{i}")
        graph.node("Clip", f"a{i} low high", f"l{i}")
        graph.node("Cast", f"l{i}", f"n{i}", to=TensorProto.INT64)
        graph.node("Gather", f"table{i} n{i}", f"e{i}")
        graph.node("Squeeze", f"e{i} one", f"q{i}")
    graph.constant("low", np.float32(0))
    graph.constant("high", np.float32(4))
    graph.constant("one", np.int64([1]))
    graph.node("Concat", " ".join(f"q{i}" for i in range(features)), "all", axis=1)
    _weight(graph, "w", 4 * features, 3)
    graph.node("MatMul", "all w", "y")
    return graph


def heads(count: int) -> Graph:
    """Heads cut out of one product by Split, each with an attention of its own, joined again."""
    number = max(count // 9, 2)
    graph = Graph(shape=("length", 2 * number))
    graph.node("Split", "x", " ".join(f"s{i}" for i in range(number)), num_outputs=number, axis=1)
    graph.constant("scale", np.float32(0.7))
    for i in range(number):
        _weight(graph, f"w{i}", 2, 2, seed=i)
        graph.node("MatMul", f"s{i} w{i}", f"q{i}")
        graph.node("Mul", f"q{i} scale", f"z{i}")
        graph.node("Transpose", f"s{i}", f"t{i}", perm=[1, 0])
        graph.node("MatMul", f"z{i} t{i}", f"m{i}")
        graph.node("Softmax", f"m{i}", f"p{i}")
        graph.node("MatMul", f"p{i} s{i}", f"o{i}")
        graph.node("Relu", f"o{i}", f"r{i}")
        graph.node("Add", f"r{i} s{i}", f"a{i}")
    graph.node("Concat", " ".join(f"a{i}" for i in range(number)), "y", axis=1)
    return graph


def constant_nodes(count: int) -> Graph:
    """Constants as nodes, each next to its only reader, as torch writes them."""
    graph = Graph(shape=("batch", 8))
    layers = max(count // 7, 1)

    def constant(name: str, values: np.ndarray) -> None:
        graph.nodes.append(helper.make_node("Constant", [], [name], value=helper.make_tensor(
            name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape, values.reshape(-1).tolist()
        )))  # fmt: skip

    for i in range(layers):
        constant(f"k{i}", np.array(1 + i / layers, np.float32))
        constant(f"axes{i}", np.array([1], np.int64))
        constant(f"shape{i}", np.array([0, 8], np.int64))
        graph.node("Mul", f"v{i} k{i}", f"m{i}")
        graph.node("ReduceMax", f"m{i} axes{i}", f"r{i}")
        graph.node("Sub", f"m{i} r{i}", f"d{i}")
        graph.node("Reshape", f"d{i} shape{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{layers}")


def nested_functions(count: int) -> Graph:
    """Modules as functions of functions, one call for each layer, as torch's newer exporter writes them."""
    graph = Graph(shape=("batch", 8))
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    linear = [helper.make_node("MatMul", ["a", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    gelu = [
        helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["y"]),
    ]  # fmt: skip
    block = [
        helper.make_node("Linear", ["a", "w", "b"], ["l"], domain="own"),
        helper.make_node("Act", ["l"], ["g"], domain="own"), helper.make_node("Add", ["a", "g"], ["y"]),
    ]  # fmt: skip
    for name, inputs, nodes in (("Linear", "awb", linear), ("Act", "a", gelu), ("Block", "awb", block)):
        graph.functions.append(helper.make_function("own", name, list(inputs), ["y"], nodes, imports))
    layers = max(count // 5, 1)
    for i in range(layers):
        _weight(graph, f"w{i}", 8, 8, seed=i)
        _weight(graph, f"b{i}", 8, seed=i)
        graph.node("Block", f"v{i} w{i} b{i}", f"v{i + 1}", domain="own")
    return between(graph, "v0", f"v{layers}")


def images(count: int) -> Graph:
    """Stages of a network of images: convolutions of several sizes, normalizations, sums, Resize and Concat."""
    graph = Graph(shape=("batch", 4, 8, 8))
    graph.constant("scales", np.float32([1, 1, 2, 2]))
    blocks = max(count // 12, 1)
    for i in range(blocks):
        for j, (size, group) in enumerate(((1, 1), (3, 4), (1, 1))):
            name = f"{i}_{j}"
            source = f"v{i}" if j == 0 else f"r{i}_{j - 1}"
            _weight(graph, f"w{name}", 4, 4 // group, size, size, seed=i + j)
            for part in ("scale", "bias", "mean"):
                _weight(graph, f"{part}{name}", 4, seed=i + j)
            graph.constant(f"var{name}", np.full(4, 1 + j, np.float32))
            graph.node("Conv", f"{source} w{name}", f"c{name}", pads=[size // 2] * 4, group=group)
            graph.node(
                "BatchNormalization", f"c{name} scale{name} bias{name} mean{name} var{name}", f"n{name}"
            )  # fmt: skip
            graph.node("Relu" if j else "HardSwish", f"n{name}", f"r{name}")
        graph.node("AveragePool", f"r{i}_2", f"p{i}", kernel_shape=[2, 2], strides=[2, 2])
        graph.node("Resize", f"p{i}  scales", f"z{i}", mode="nearest")
        graph.nodes[-1].input[:] = [f"p{i}", "", "scales"]
        graph.node("Add", f"z{i} v{i}", f"v{i + 1}")
    return between(graph, "v0", f"v{blocks}")


EXPORTED: dict[str, Callable[[int], Graph]] = {
    "transformer": transformer,
    "detection": detection,
    "unrolled": unrolled,
    "squeezing ifs": squeezing_ifs,
    "quantized residuals": quantized_residuals,
    "caches": caches,
    "assigned slices": assigned_slices,
    "columns": columns,
    "heads": heads,
    "constant nodes": constant_nodes,
    "nested functions": nested_functions,
    "images": images,
}
