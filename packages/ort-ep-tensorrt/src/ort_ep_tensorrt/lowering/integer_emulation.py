"""Emulated integers: integers of 8 bits as float32 within a claim, because TensorRT computes in none of them.

    y = DequantizeLinear(QuantizeLinear(x, s, z), s, z)    with uint8 z
    ->  q = Min(Max(Round(x / s) + z, 0), 255)   y = (q - z) * s                     all in float32

float32 holds every integer of 8 bits, so that nothing is lost: what QuantizeLinear rounds is what is rounded here. At a
claim's border Cast makes the float32 value and takes it back. QuantizeLinear and DequantizeLinear of int8 whose zero
points are 0, with nothing between them, stay as they are: TensorRT computes products between them in int8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, Graph, Node, Value
from ort_ep_tensorrt.lowering.editing import Editor, LoweringRefusal, place_of

BOUNDS: Mapping[DataType, tuple[int, int]] = {DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}
_CONVERTING = frozenset({"QuantizeLinear", "DequantizeLinear"})
_MOVING = frozenset(
    {
        "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "MaxPool", "ReduceMax", "ReduceMin", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze",
        "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
_CHOOSING = frozenset({"Clip", "Max", "Min", "Relu", "Where"})
_COMPARING = frozenset({"ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
OPERATORS = _CONVERTING | _MOVING | _CHOOSING | _COMPARING | {"Cast"}
"""What may read or make integers of 8 bits."""


def hold_as_float32(graph: Graph) -> None:
    """Rewrite a marked copy of a claim.

    Raises:
        LoweringRefusal: a node computes with 8 bits what float32 would not compute alike.
    """
    _IntegerEmulation(graph).run()


def native_nodes(graph: Graph) -> frozenset[Node]:
    """Return the nodes that TensorRT takes as they are: symmetric int8 between which there is nothing else."""
    found = {node for node in graph if node.op_type in _CONVERTING and _is_symmetric(node)}
    size = -1
    while size != len(found):
        size = len(found)
        found -= {node for node in found if not _has_native_neighbors(node, found)}
    return frozenset(found)


class _IntegerEmulation:
    """The rewriting of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._native = native_nodes(graph)
        self._held: dict[Value, tuple[Value, DataType]] = {}

    def run(self) -> None:
        for node in self._graph.nodes:
            if node not in self._native and node.op_type != "MatMulNBits" and self._is_concerned(node):
                self._rewrite(node)

    def _is_concerned(self, node: Node) -> bool:
        values = (*node.present_inputs(), *node.present_outputs())
        return (
            node.op_type in _CONVERTING
            or any(value in self._held or dtype_of(value) in BOUNDS for value in values)
            or (node.op_type == "Cast" and node.attribute("to") in BOUNDS)
        )

    def _rewrite(self, node: Node) -> None:
        editor = Editor(self._graph, node)
        if node.op_type not in OPERATORS:
            raise LoweringRefusal(place_of(node), f"TensorRT computes {node.op_type} in no integers of 8 bits")
        held = _WRITERS.get(node.op_type, _same_operator)(self, editor)
        results: dict[int, Value] = {}
        casts: dict[int, DataType] = {}
        for index, (value, dtype) in held.items():
            original = node.outputs[index]
            assert original is not None
            if dtype is not None:
                self._held[original] = (value, dtype)
                casts[index] = dtype
            if dtype is None or original.is_graph_output:
                results[index] = value
            else:
                node.detach_output(index)
        editor.finish(results, casts)

    def dtype(self, value: Value | None) -> DataType | None:
        """Return the type that a value stands for."""
        return self._held[value][1] if value in self._held and value is not None else dtype_of(value)

    def held(self, editor: Editor, value: Value) -> Value:
        """Return the float32 form of a value of 8 bits, and any other value as it is."""
        if value in self._held:
            return self._held[value][0]
        dtype = dtype_of(value)
        if dtype is None or dtype not in BOUNDS:
            return value
        constant = self._graph.fixed_constant(value)
        found = (
            editor.constant(constant.array().astype(np.float32))
            if constant is not None
            else editor.cast(value, DataType.FLOAT)
        )
        self._held[value] = (found, dtype)
        return found


Held = dict[int, tuple[Value, DataType | None]]


def _same_operator(state: _IntegerEmulation, editor: Editor) -> Held:
    """Let the same operator read float32 forms; what it makes of 8 bits is one again."""
    node = editor.node
    inputs = [None if value is None else state.held(editor, value) for value in node.inputs]
    dtype = next((found for value in node.inputs if (found := state.dtype(value)) in BOUNDS), None)
    twin = editor.graph.insert_before(
        node, Node(node.op_type, inputs, len(node.outputs), tuple(node.attributes.values()))
    )
    twin.metadata.update(node.metadata)
    held: Held = {}
    for index, original in enumerate(node.outputs):
        result = twin.outputs[index]
        if original is not None and result is not None:
            keeps = node.op_type not in _COMPARING and not (node.op_type == "MaxPool" and index)
            held[index] = (result, dtype if keeps else None)
    return held


def _cast(state: _IntegerEmulation, editor: Editor) -> Held:
    """Cast to 8 bits goes through int32, which cuts off what is behind the point."""
    node, target = editor.node, DataType(int(editor.node.int_attribute("to", 0)))
    source = node.input(0)
    assert source is not None
    held, dtype = state.held(editor, source), state.dtype(source)
    if target not in BOUNDS:
        return {0: (held if target is DataType.FLOAT else editor.cast(held, target), None)}
    if dtype is target:
        return {0: (held, target)}
    if dtype is DataType.BOOL:
        return {0: (editor.cast(held, DataType.FLOAT), target)}
    if dtype not in (DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, None):
        raise LoweringRefusal(place_of(node), f"a Cast of {dtype.name} to {target.name} wraps around; float32 does not")
    return {0: (editor.cast(editor.cast(held, DataType.INT32), DataType.FLOAT), target)}


def _quantize(state: _IntegerEmulation, editor: Editor) -> Held:
    """QuantizeLinear -> Min(Max(Round(x / s) + z, lowest), highest): Clip has its bounds elsewhere before opset 11."""
    node = editor.node
    target = _target_of(state, node)
    if target is None or target not in BOUNDS:
        raise LoweringRefusal(place_of(node), f"TensorRT quantizes to no {target.name if target else 'unknown type'}")
    source, scale = node.inputs[:2]
    assert source is not None
    assert scale is not None
    if dtype_of(scale) not in (DataType.FLOAT, None):
        raise LoweringRefusal(place_of(node), f"{node.op_type} with a scale in {scale.type} divides in that type")
    x = source if dtype_of(source) in (DataType.FLOAT, None) else editor.cast(source, DataType.FLOAT)
    steps = editor.add("Round", [editor.add("Div", [x, _along_axis(editor, scale, source)])])
    zero = node.input(2)
    if zero is not None:
        steps = editor.add("Add", [steps, _along_axis(editor, state.held(editor, zero), source)])
    low, high = (editor.constant(np.array(bound, np.float32)) for bound in BOUNDS[target])
    return {0: (editor.add("Min", [editor.add("Max", [steps, low]), high]), target)}


def _dequantize(state: _IntegerEmulation, editor: Editor) -> Held:
    """DequantizeLinear -> (q - z) * s; that of a constant is computed here."""
    node = editor.node
    source, scale, zero = node.input(0), node.input(1), node.input(2)
    assert source is not None
    assert scale is not None
    if state.dtype(source) not in (*BOUNDS, DataType.INT32, None):
        raise LoweringRefusal(place_of(node), f"TensorRT dequantizes no {source.type}")
    graph = editor.graph
    constants = [None if value is None else graph.fixed_constant(value) for value in (source, scale, zero)]
    if constants[0] is not None and constants[1] is not None and (zero is None or constants[2] is not None):
        return {0: (editor.constant(_dequantized(node, constants)), None)}
    held = state.held(editor, source)
    held = editor.cast(held, DataType.FLOAT) if state.dtype(source) is DataType.INT32 else held
    if zero is not None:
        center = state.held(editor, zero)
        center = editor.cast(center, DataType.FLOAT) if state.dtype(zero) is DataType.INT32 else center
        held = editor.add("Sub", [held, _along_axis(editor, center, source)])
    factor, target = scale, dtype_of(scale)
    if target not in (DataType.FLOAT, None):
        factor = editor.cast(scale, DataType.FLOAT)
    found = editor.add("Mul", [held, _along_axis(editor, factor, source)])
    return {0: (found if target in (DataType.FLOAT, None) else editor.cast(found, target), None)}


def _dequantized(node: Node, constants: list[Constant | None]) -> np.ndarray:
    source, scale, zero = (None if constant is None else constant.array() for constant in constants)
    assert source is not None
    assert scale is not None
    centered = source.astype(np.int32) - (0 if zero is None else _spread(node, zero.astype(np.int32), source.ndim))
    spread = _spread(node, scale.astype(np.float32), source.ndim)
    return np.asarray(np.multiply(centered.astype(np.float32), spread)).astype(scale.dtype)


def _spread(node: Node, values: np.ndarray, rank: int) -> np.ndarray:
    if values.size == 1:
        return values.reshape(())
    shape = [1] * rank
    shape[node.int_attribute("axis", 1)] = -1
    return values.reshape(shape)


def _along_axis(editor: Editor, values: Value, source: Value) -> Value:
    """Return scales or zero points in a shape that broadcasts along the axis of quantization."""
    node = editor.node
    if node.int_attribute("block_size", 0):
        raise LoweringRefusal(place_of(node), f"{node.op_type} in blocks of 8 bits is not rewritten for TensorRT")
    scale = node.input(1)
    if values.rank == 0 or scale is None or scale.rank in (0, None) or (scale.shape == (1,) and source.rank):
        return values
    if source.rank is None:
        raise LoweringRefusal(place_of(node), f"the rank of {source.name!r} is not known")
    axis, shape = node.int_attribute("axis", 1), [1] * source.rank
    if not -source.rank <= axis < source.rank:
        raise LoweringRefusal(place_of(node), f"{source.name!r} has no axis {axis}, along which it has scales")
    shape[axis] = -1
    return editor.add("Reshape", [values, editor.constant(np.array(shape, np.int64))])


def _target_of(state: _IntegerEmulation, node: Node) -> DataType | None:
    zero, stated = node.input(2), node.int_attribute("output_dtype", 0)
    if zero is not None:
        return state.dtype(zero)
    return DataType(stated) if stated else DataType.UINT8


def _is_symmetric(node: Node) -> bool:
    quantized = node.output if node.op_type == "QuantizeLinear" else node.input(0)
    zero = node.input(2)
    if dtype_of(quantized) is not DataType.INT8:
        return dtype_of(quantized) not in (*BOUNDS, DataType.INT32, None)  # 4 bits, float8: TensorRT's own
    constant = None if zero is None or zero.graph is None else zero.graph.fixed_constant(zero)
    return zero is None or (constant is not None and not constant.array().any())


def _has_native_neighbors(node: Node, native: set[Node]) -> bool:
    if node.op_type == "DequantizeLinear":
        source = node.input(0)
        return source is None or source.producer is None or source.producer in native
    return all(reader in native for reader in node.output.consumers())


_WRITERS: Mapping[str, Callable[[_IntegerEmulation, Editor], Held]] = {
    "Cast": _cast,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
