"""ByteTables: what becomes of one tensor of bytes, element by element, and ends in bytes, is a table of 256 of them.

    y = QuantizeLinear(Mul(DequantizeLinear(x), Sigmoid(DequantizeLinear(x))))    ->  y = Gather(table, Cast(x))
    y = QLinearSigmoid(x)                                                         ->  y = Gather(table, Cast(x))

Static quantization writes activations so: a Gelu is ten nodes between bytes. The table is what the reference kernels
make of all 256 bytes; int8 counts from the end of it where it is negative, as Gather does. A chain is replaced where it
has a function that takes many instructions, such as Erf: others are fused with what stands around them for less. What
lies within must be read by nobody else, and all other operands must be constants of one element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import DataType, Node, Shape, TensorType, Value
from ort_core.plugin.passes import Level, Pass, PassContext, PassRecordState
from ort_core.plugin.rewrite import GraphPatch, constant_of

TABLE_SIZE = 256
BYTES = frozenset({DataType.UINT8, DataType.INT8})
MIN_COUNT = 1 << 13  # elements: for fewer a step of their own takes longer than what it saves
MOST_NODES = 64  # of a chain
_DOMAINS = ("", "com.microsoft")
_ENDS = ("QuantizeLinear", "QLinearSigmoid", "QLinearAdd", "QLinearMul", "QLinearLeakyRelu")
_LONG = frozenset(
    {
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "FastGelu",
        "Gelu", "Log", "Mish", "Pow", "QLinearSigmoid", "QuickGelu", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus",
        "Swish", "Tan", "Tanh",
    }
)  # fmt: skip
_SHORT = frozenset(
    {
        "Abs", "Add", "Ceil", "Clip", "DequantizeLinear", "Div", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu",
        "Max", "Min", "Mul", "Neg", "QLinearAdd", "QLinearLeakyRelu", "QLinearMul", "QuantizeLinear", "Reciprocal",
        "Relu", "Round", "Softsign", "Sqrt", "Sub", "ThresholdedRelu",
    }
)  # fmt: skip
_COUNTS_FROM_END = 11  # the version of Gather from which an index may be negative


@frozen
class ByteChain:
    """Nodes, in the order of the graph, that make bytes of the bytes of one tensor."""

    source: Value
    nodes: tuple[Node, ...]


class ByteTables(Pass):
    """Look chains up in tables, the longest first."""

    name = "ByteTables"
    level = Level.EXTENDED

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at what ends in bytes, the last nodes first: their chains contain those before them."""
        if context.evaluate_node is None or not context.op_types() & _LONG:
            return
        for graph in context.graphs_with(_ENDS):
            places = {node: place for place, node in enumerate(graph)}
            for end in reversed(context.nodes_of(graph, _ENDS)):
                if end.graph is not graph:
                    continue  # part of a chain that was replaced
                chain = find_chain(end, places)
                objection = chain if isinstance(chain, Rejection) else _replace(context, chain)
                if objection is None:
                    record.changed("chain of bytes")
                else:
                    record.refused("chain of bytes", objection, end)


def find_chain(end: Node, places: Mapping[Node, int]) -> ByteChain | Rejection:
    """Return the longest chain that ends in a node, or why there is none worth a table.

    Args:
        end: the last node.
        places: of the nodes of its graph, each behind those whose values it reads.
    """
    if not _is_of_one_tensor(end) or _dtype(end.output) not in BYTES:
        return Rejection("the result is no tensor of bytes, or an operand is not one constant number", end)
    objection = _refuse_sizes(end.output.shape, end)  # before the chain is walked: each end of a long one would walk it
    if objection is not None:
        return objection
    inside, sources, found = {end}, set(_tensors(end)), None
    while sources:
        last = max(sources, key=lambda value: _place(value, places))
        if len(sources) == 1 and _dtype(last) in BYTES:
            found = last, frozenset(inside)
        before = _joined(last, inside, places)
        if before is None or len(inside) == MOST_NODES:
            break
        inside.add(before)
        sources = (sources - {last}) | set(_tensors(before))
    if found is None:
        return Rejection("it is not made of the bytes of one tensor", end)
    source, nodes = found
    if not any(node.op_type in _LONG for node in nodes):
        return Rejection("no function of it takes many instructions", end)
    if source.shape != end.output.shape:
        return Rejection("the sizes are not known to be equal", end)
    return ByteChain(source, tuple(sorted(nodes, key=places.__getitem__)))


def _place(value: Value, places: Mapping[Node, int]) -> int:
    """Return the place of the node that makes a value, -1 for what no node of the graph makes."""
    return -1 if value.producer is None else places.get(value.producer, -1)


def _joined(value: Value, inside: set[Node], places: Mapping[Node, int]) -> Node | None:
    """Return the node that makes a value, if it computes element by element and all its readers are in the chain."""
    node = value.producer
    if (
        node is None
        or node not in places
        or value.is_graph_output
        or any(reader not in inside for reader in value.consumers())
    ):
        return None
    return node if _is_of_one_tensor(node) else None


def _is_of_one_tensor(node: Node) -> bool:
    """Return whether a node computes element by element of tensors of its result's shape and single numbers."""
    if node.domain not in _DOMAINS or node.op_type not in _LONG | _SHORT or len(node.outputs) != 1:
        return False
    rank = node.output.rank
    for value in node.present_inputs():
        if not _is_fixed(value):
            if value.rank != rank or value.constant is not None:
                return False
        elif rank is None or value.shape is None or len(value.shape) > rank or any(size != 1 for size in value.shape):
            return False
    return not node.int_attribute("block_size", 0)


def _tensors(node: Node) -> list[Value]:
    """Return the inputs that a run computes."""
    return [value for value in node.present_inputs() if not _is_fixed(value)]


def _is_fixed(value: Value) -> bool:
    """Return whether a value is a constant, or one that is dequantized, which stays a node."""
    node = value.producer
    if node is None:
        return constant_of(value) is not None
    return node.op_type == "DequantizeLinear" and all(constant_of(each) is not None for each in node.present_inputs())


def _refuse_sizes(shape: Shape | None, end: Node) -> Rejection | None:
    """Return why no chain that ends in a tensor of this shape is worth a table."""
    if not shape or None in shape:
        return Rejection("the sizes are not known to be equal", end)
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) == len(shape) and math.prod(sizes) < MIN_COUNT:
        return Rejection("it has few elements", end)
    return None


def _replace(context: PassContext, chain: ByteChain) -> Rejection | None:
    end, opset = chain.nodes[-1], context.model.opset_imports.get("", 0)
    if _dtype(chain.source) is DataType.INT8 and opset < _COUNTS_FROM_END:
        return Rejection("Gather does not count from the end yet", end)
    table = table_of(context, chain)
    if isinstance(table, Rejection):
        return table
    patch = GraphPatch(context.model, end)
    wide = TensorType(DataType.INT32, chain.source.shape)
    places = patch.op("Cast", [chain.source], {"to": int(DataType.INT32)}, type=wide)
    made = patch.op("Gather", [patch.constant(table, "table"), places], type=end.output.type, name=end.name)
    patch.replace(end.output, made)
    for node in reversed(chain.nodes):
        patch.remove(node)
    return patch.apply()


def table_of(context: PassContext, chain: ByteChain) -> np.ndarray | Rejection:
    """Return what a chain makes of each byte, in the order of their bits."""
    dtype, rank = _dtype(chain.source), chain.source.rank
    assert rank
    given = np.arange(TABLE_SIZE, dtype=np.uint8).view(dtype.numpy).reshape(*[1] * (rank - 1), TABLE_SIZE)
    values = {chain.source: given}
    made = given
    for node in chain.nodes:
        for value in node.present_inputs():
            if value not in values and constant_of(value) is None and value.producer is not None:
                number = _evaluated(context, value.producer, {})
                if isinstance(number, Rejection):
                    return number
                values[value] = number
        found = _evaluated(context, node, values)
        if isinstance(found, Rejection):
            return found
        if found.shape != given.shape:
            return Rejection("a kernel does not compute it element by element", node)
        made = values[node.output] = found
    return np.ascontiguousarray(made.reshape(TABLE_SIZE))


def _evaluated(context: PassContext, node: Node, values: Mapping[Value, np.ndarray]) -> np.ndarray | Rejection:
    """Return the output of a node, whose inputs are among the values or constants."""
    assert context.evaluate_node is not None
    results = context.evaluate_node(node, [None if value is None else _array(value, values) for value in node.inputs])
    if isinstance(results, Rejection):
        return results
    return results[0] if isinstance(results[0], np.ndarray) else Rejection("its result is no tensor", node)


def _array(value: Value, values: Mapping[Value, np.ndarray]) -> np.ndarray:
    if value in values:
        return values[value]
    constant = constant_of(value)
    assert constant is not None
    array: np.ndarray = constant.array()
    return array


def _dtype(value: Value) -> DataType:
    return value.type.dtype if isinstance(value.type, TensorType) else DataType.UNDEFINED
