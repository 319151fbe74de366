"""Legalization: nodes that OpenVINO misreads, as others that mean the same and that it reads rightly.

Done on the copy of a claim that is handed to the frontend; the model of the session keeps its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, Graph, Node, TensorType, Value
from ort_ep_openvino.lowering.compositions import causal_convolution, gate, steps_first

SHORTS = (DataType.INT16, DataType.UINT16)
NARROW = (DataType.INT8, DataType.UINT8, *SHORTS)
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_LARGE = 1e38  # below half of the largest float32; a Gelu is its argument from about 6 on
_FARTHEST = 2.0**62  # a coordinate of a grid beyond which no integer holds the place
Rewrite = Callable[[Graph, Node], None]


def legalize(graph: Graph) -> None:
    """Rewrite the nodes of a graph in place; its inputs and outputs stay."""
    for node in graph.nodes:
        rewrite = _REWRITES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rewrite is not None:
            rewrite(graph, node)
    for node in graph.nodes:  # behind the others: it replaces another node than the one that it is found by
        if node.op_type == "Erf":
            _gelu_of_erf(graph, node)


def _cast_like(graph: Graph, node: Node) -> None:
    """CastLike(x, y) -> Cast<to>(x): the device runs no ConvertLike."""
    target = dtype_of(node.output)
    assert target is not None, "claims hold typed tensors"
    cast = Node("Cast", [node.input(0)], 1, {"to": int(target)}, name=node.name)
    _replace(graph, node, cast)
    _cast(graph, cast)


def _cast(graph: Graph, node: Node) -> None:
    """Cast<to=bool>(x) -> Not(Equal(x, 0)): a NaN is true."""
    source = dtype_of(node.input(0))
    if source not in (DataType.FLOAT, DataType.FLOAT16) or dtype_of(node.output) is not DataType.BOOL:
        return
    zero = graph.new_constant(np.zeros((), source.numpy), "zero")
    equal = graph.insert_before(node, Node("Equal", [node.input(0), zero], [Value("", _boolean(node))]))
    _replace(graph, node, Node("Not", [equal.output], 1, name=node.name))


def _non_max_suppression(graph: Graph, node: Node) -> None:
    """Move the overlap's threshold up by rounding: OpenVINO drops a box whose overlap is the threshold itself.

    The product lies one or two steps above the threshold; denormal numbers, which the device may flush, are left out.
    """
    threshold = node.input(3)
    step = graph.new_constant(np.array(1 + np.finfo(np.float32).eps, np.float32), "step")
    least = graph.new_constant(np.array(np.finfo(np.float32).tiny), "least")
    if threshold is None:
        moved = least
    else:
        above = graph.insert_before(node, Node("Mul", [threshold, step], 1)).output
        moved = graph.insert_before(node, Node("Max", [above, least], 1)).output
    node.set_inputs([node.input(0), node.input(1), node.input(2), moved, node.input(4)])


def _extreme(graph: Graph, node: Node) -> None:
    """ReduceMax(x) -> NaN where there is one, -inf where there is nothing else, ReduceMax(x); and ReduceMin alike.

    The device starts from the lowest finite number: it returns that for nothing but infinities or NaNs, and for no
    elements. Each element counts 0 where it is -inf, 1 where it is another number, 2 where it is NaN.
    """
    source = dtype_of(node.input(0))
    axes, attributes = node.inputs[1:], tuple(node.attributes.values())
    zero = graph.new_constant(np.zeros((), np.float32), "zero")

    def add(op_type: str, inputs: Sequence[Value | None], given: object = ()) -> Value:
        return graph.insert_before(node, Node(op_type, inputs, 1, given)).output  # type: ignore[arg-type]  # Node checks

    if source is DataType.BOOL:
        numbers = add("Cast", [node.input(0)], {"to": int(DataType.FLOAT)})
        reduced = add(node.op_type, [numbers, *axes], attributes)
        _replace(graph, node, Node("Greater", [reduced, zero], 1, name=node.name))
        return
    assert source in (DataType.FLOAT, DataType.FLOAT16), "the table takes no other types"
    worst = -np.inf if node.op_type == "ReduceMax" else np.inf
    limit = graph.new_constant(np.array(worst, source.numpy), "worst")
    one, none = graph.new_constant(np.ones((), np.float32)), graph.new_constant(np.array(np.nan, source.numpy))
    checks = (add("Not", [add("Equal", [node.input(0), limit])]), add("IsNaN", [node.input(0)]))
    counts = add("Add", [add("Cast", [check], {"to": int(DataType.FLOAT)}) for check in checks])
    found = add("ReduceMax", [counts, *axes], attributes)
    extreme = add(node.op_type, node.inputs, attributes)
    number = add("Where", [add("Less", [zero, found]), extreme, limit])
    _replace(graph, node, Node("Where", [add("Less", [one, found]), none, number], 1, name=node.name))


def _larger_or_smaller(graph: Graph, node: Node) -> None:
    """Max(a, b) -> Where(a is NaN, or greater than a b that is none, a, b), and Min alike: the device loses NaNs."""
    if dtype_of(node.output) not in (DataType.FLOAT, DataType.FLOAT16) or len(node.inputs) < 2:
        return

    def add(op_type: str, inputs: Sequence[Value | None]) -> Value:
        return graph.insert_before(node, Node(op_type, inputs, 1)).output

    found, *others = node.inputs
    for other in others:
        better = add("Greater" if node.op_type == "Max" else "Less", [found, other])
        is_number = add("Not", [add("IsNaN", [other])])
        wins = add("Or", [add("IsNaN", [found]), add("And", [better, is_number])])
        found = add("Where", [wins, found, other])
    _replace(graph, node, Node("Identity", [found], 1, name=node.name))


def _swapped(graph: Graph, node: Node) -> None:
    """Greater(a, b) -> Less(b, a), and GreaterOrEqual alike: the device finds a NaN greater than all there is."""
    if dtype_of(node.input(0)) in (DataType.FLOAT, DataType.FLOAT16):
        op_type = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}[node.op_type]
        _replace(graph, node, Node(op_type, [node.input(1), node.input(0)], 1, name=node.name))


def _widened(graph: Graph, node: Node) -> None:
    """Arithmetic of 8 and 16 bits -> in int32, then cut to the bits of the type.

    The device saturates where bytes wrap around, and holds 16 bits in int32 without cutting what overflows.
    """
    dtype = dtype_of(node.output)
    if dtype not in NARROW or (node.op_type in ("Div", "Mod") and dtype not in SHORTS):
        return

    def add(op_type: str, inputs: Sequence[Value | None], given: object = ()) -> Value:
        return graph.insert_before(node, Node(op_type, inputs, 1, given)).output  # type: ignore[arg-type]  # Node checks

    def constant(number: int) -> Value:
        return graph.new_constant(np.array(number, np.int32), "number")

    lowest = 1 << (dtype.bits - 1) if dtype in (DataType.INT8, DataType.INT16) else 0
    wide = [add("Cast", [value], {"to": int(DataType.INT32)}) for value in node.inputs]
    raised = add("Add", [add(node.op_type, wide, tuple(node.attributes.values())), constant(lowest)])
    cut = add("Sub", [add("BitwiseAnd", [raised, constant((1 << dtype.bits) - 1)]), constant(lowest)])
    _replace(graph, node, Node("Cast", [cut], 1, {"to": int(dtype)}, name=node.name))


def _dropout(graph: Graph, node: Node) -> None:
    """Dropout(x) outside of training -> Identity(x), and a mask of ones."""
    outputs = node.outputs
    if len(outputs) > 1 and outputs[1] is not None:
        shape = graph.insert_before(node, Node("Shape", [node.input(0)], 1)).output
        fill = {"value": Constant.of(np.ones(1, bool))}
        ones = graph.insert_before(node, Node("ConstantOfShape", [shape], 1, fill))
        ones.adopt_outputs([node.detach_output(1)])
    _replace(graph, node, Node("Identity", [node.input(0)], 1, name=node.name))


def _quantized(graph: Graph, node: Node) -> None:
    """QuantizeLinear(x, scale, zero point) -> a quotient, rounded, moved, cut; where one of both is no constant.

    The frontend's form of such a node rounds behind the zero point: ties go to the wrong side where it is odd.
    Constants stay: what quantized products are recognized by is worth a tie.
    """
    x, scale, point = node.input(0), node.input(1), node.input(2)
    source, dtype = dtype_of(x), dtype_of(node.output)
    assert source is not None, "claims hold typed tensors"
    assert dtype is not None, "claims hold typed tensors"
    if all(value is None or graph.fixed_constant(value) is not None for value in (scale, point)):
        return

    def add(op_type: str, inputs: Sequence[Value | None], given: object = ()) -> Value:
        return graph.insert_before(node, Node(op_type, inputs, 1, given)).output  # type: ignore[arg-type]  # Node checks

    float32 = {"to": int(DataType.FLOAT)}
    limits = np.iinfo(dtype.numpy)
    ends = [graph.new_constant(np.array(limit, np.float32), "limit") for limit in (limits.min, limits.max)]
    found = add("Round", [add("Div", [add("Cast", [value], float32) for value in (x, scale)])])
    if point is not None:
        found = add("Add", [found, add("Cast", [point], float32)])
    _replace(graph, node, Node("Cast", [add("Clip", [found, *ends])], 1, {"to": int(dtype)}, name=node.name))


def _dynamically_quantized(graph: Graph, node: Node) -> None:
    """DynamicQuantizeLinear(x) -> its scale, 1 where all is zero as with onnxruntime; its zero point; the rounded x."""

    def add(op_type: str, inputs: Sequence[Value | None], given: object = ()) -> Value:
        return graph.insert_before(node, Node(op_type, inputs, 1, given)).output  # type: ignore[arg-type]  # Node checks

    x, byte = node.input(0), {"to": int(DataType.UINT8)}
    zero, one, top = (graph.new_constant(np.array(number, np.float32), "number") for number in (0, 1, 255))
    largest, smallest = (add(op_type, [x], {"keepdims": 0}) for op_type in ("ReduceMax", "ReduceMin"))
    for extreme in (largest, smallest):
        assert extreme.producer is not None, "a node was added"
        _extreme(graph, extreme.producer)
    high = add("Where", [add("Less", [largest, zero]), zero, largest])  # Max would lose a NaN
    low = add("Where", [add("Less", [zero, smallest]), zero, smallest])
    extent = add("Sub", [high, low])
    scale = add("Where", [add("Equal", [extent, zero]), one, add("Div", [extent, top])])
    point = add("Round", [add("Clip", [add("Div", [add("Sub", [zero, low]), scale]), zero, top])])
    moved = add("Add", [add("Round", [add("Div", [x, scale])]), point])
    made = (("Cast", add("Clip", [moved, zero, top]), byte), ("Identity", scale, ()), ("Cast", point, byte))
    for index, (op_type, value, given) in enumerate(made):
        if len(node.outputs) > index and node.outputs[index] is not None:
            last = graph.insert_before(node, Node(op_type, [value], 1, given, name=node.name))  # type: ignore[arg-type]  # Node checks
            last.adopt_outputs([node.detach_output(index)])
    graph.remove(node)


def _said_samples(graph: Graph, node: Node) -> None:
    """RoiAlign(...) -> RoiAlign<sampling_ratio=0>(...): the frontend takes one that says nothing for 1."""
    if "sampling_ratio" not in node.attributes:
        node.set_attributes({"sampling_ratio": 0})


def _power(graph: Graph, node: Node) -> None:
    """Pow(x, integer) -> Pow(x, Cast(integer)): the frontend computes two element types in the wrong one."""
    base, exponent = dtype_of(node.input(0)), dtype_of(node.input(1))
    if base is not None and exponent is not base:
        cast = graph.insert_before(node, Node("Cast", [node.input(1)], 1, {"to": int(base)}))
        node.set_input(1, cast.output)


def _gelu(graph: Graph, node: Node) -> None:
    """Gelu(x) -> Where(x > a large number, x, Gelu(x)): the device multiplies by 2 on the way, and overflows.

    What follows a product stays as it is: the device computes it with the product, whose own sums overflow there.
    """
    x = node.input(0)
    if dtype_of(x) is not DataType.FLOAT or x is None or _is_of_product(x):
        return
    found = graph.insert_before(node, Node("Gelu", [x], 1, tuple(node.attributes.values()))).output
    _replace(graph, node, _large_or(graph, node, x, found))


def _gelu_of_erf(graph: Graph, node: Node) -> None:
    """Erf in x / 2 * (Erf(x * a) + 1), which the device takes for a Gelu, and so computes as one."""
    scaled, sums = node.input(0), list(node.output.consumers())
    if scaled is None or scaled.producer is None or scaled.producer.op_type != "Mul" or len(sums) != 1:
        return
    products = list(sums[0].output.consumers())
    if sums[0].op_type != "Add" or [each.op_type for each in products] != ["Mul"]:
        return
    halves = [each.producer for each in products[0].present_inputs() if each.producer not in (None, sums[0])]
    for x in scaled.producer.present_inputs():
        is_half = any(half is not None and half.op_type == "Mul" and x in half.present_inputs() for half in halves)
        if is_half and x.constant is None and dtype_of(x) is DataType.FLOAT and not _is_of_product(x):
            product = products[0]
            found = graph.insert_before(product, Node("Mul", product.inputs, 1)).output
            _replace(graph, product, _large_or(graph, product, x, found))
            return


def _large_or(graph: Graph, node: Node, x: Value, found: Value) -> Node:
    large = graph.new_constant(np.array(_LARGE, np.float32), "large")
    is_large = graph.insert_before(node, Node("Greater", [x, large], 1)).output
    return Node("Where", [is_large, x, found], 1, name=node.name)


def _is_of_product(value: Value) -> bool:
    """Return whether a value is a product, or one with a summand."""
    producer = value.producer
    if producer is not None and producer.op_type == "Add":
        return any(
            each.producer is not None and each.producer.op_type in _PRODUCTS for each in producer.present_inputs()
        )
    return producer is not None and producer.op_type in _PRODUCTS


def _grid(graph: Graph, node: Node) -> None:
    """GridSample(x, grid) -> the same, where what is no place in the grid is the low edge: the device spreads NaNs."""
    grid, dtype = node.input(1), dtype_of(node.input(1))
    assert dtype is not None, "claims hold typed tensors"
    farthest = graph.new_constant(np.array(_FARTHEST if dtype is DataType.FLOAT else np.inf, dtype.numpy), "farthest")
    edge = graph.new_constant(np.array(-1, dtype.numpy), "edge")
    size = graph.insert_before(node, Node("Abs", [grid], 1)).output
    is_place = graph.insert_before(node, Node("Less", [size, farthest], 1)).output
    node.set_input(1, graph.insert_before(node, Node("Where", [is_place, grid, edge], 1)).output)


def _einsum(graph: Graph, node: Node) -> None:
    """Einsum<equation="ab->ab">(x) -> Identity(x): the device leaves such a result unwritten."""
    read, arrow, made = "".join(node.string_attribute("equation", "").split()).partition("->")
    if not arrow:
        made = "".join(sorted(letter for letter in set(read) if letter.isalpha() and read.count(letter) == 1))
        made = f"...{made}" if "..." in read else made
    if len(node.inputs) == 1 and read == made:
        _replace(graph, node, Node("Identity", [node.input(0)], 1, name=node.name))


def _gemm(graph: Graph, node: Node) -> None:
    """Gemm<beta=0>(a, b, c) -> Gemm(a, b, 0): what is multiplied by nothing is not read, even where it is no number."""
    bias = node.input(2)
    if bias is not None and node.float_attribute("beta", 1.0) == 0:
        dtype = dtype_of(bias)
        assert dtype is not None, "claims hold typed tensors"
        node.set_input(2, graph.new_constant(np.zeros((), dtype.numpy), "zero"))


def _to_reshape(graph: Graph, node: Node) -> None:
    """Unsqueeze or Squeeze with axes from outside -> Reshape, where the shape of the result is known without them."""
    axes, shape = node.input(1), node.output.shape
    if axes is None or graph.fixed_constant(axes) is not None or shape is None:
        return
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) == len(shape):
        target = graph.new_constant(np.array(sizes, np.int64), "shape")
        _replace(graph, node, Node("Reshape", [node.input(0), target], 1, {"allowzero": 1} if 0 in sizes else {}))


def _replace(graph: Graph, node: Node, replacement: Node) -> None:
    graph.insert_before(node, replacement)
    replacement.adopt_outputs([node.detach_output(0)])
    graph.remove(node)


def _boolean(node: Node) -> TensorType:
    kind = node.output.type
    assert isinstance(kind, TensorType)
    return TensorType(DataType.BOOL, kind.shape)


def _axes_both_ways(graph: Graph, node: Node) -> None:
    """Give axes that are an attribute as an input, too: from opset 13 on the frontend reads the input alone.

    ONNX has such an input from opset 18 on. Before opset 13 the frontend reads the attribute alone.
    """
    axes = node.ints_attribute("axes")
    if axes and node.input(1) is None:
        node.set_inputs([node.input(0), graph.new_constant(np.array(axes, np.int64), "axes")])


def _chosen_booleans(graph: Graph, node: Node) -> None:
    """Where(c, x, y) of booleans -> Or(And(c, x), And(Not(c), y)): the device fails where c is one of them."""
    if dtype_of(node.output) is not DataType.BOOL:
        return
    condition, first, second = node.inputs

    def add(op_type: str, *inputs: Value | None) -> Value:
        return graph.insert_before(node, Node(op_type, inputs, 1)).output

    left, right = add("And", condition, first), add("And", add("Not", condition), second)
    _replace(graph, node, Node("Or", [left, right], 1, name=node.name))


_REWRITES: Mapping[str, Rewrite] = {
    **dict.fromkeys(("Add", "Div", "Mod", "Mul", "Sub"), _widened),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), steps_first),
    **dict.fromkeys(("Greater", "GreaterOrEqual"), _swapped),
    **dict.fromkeys(("ReduceL1", "ReduceLogSum", "ReduceLogSumExp"), _axes_both_ways),
    **dict.fromkeys(("Max", "Min"), _larger_or_smaller),
    "CausalConvWithState": causal_convolution,
    "SwiGLU": gate,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _dynamically_quantized,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "Gelu": _gelu,
    "GridSample": _grid,
    "Pow": _power,
    "QuantizeLinear": _quantized,
    "Cast": _cast,
    "CastLike": _cast_like,
    "NonMaxSuppression": _non_max_suppression,
    "ReduceMax": _extreme,
    "RoiAlign": _said_samples,
    "ReduceMin": _extreme,
    "Squeeze": _to_reshape,
    "Unsqueeze": _to_reshape,
    "Where": _chosen_booleans,
}
