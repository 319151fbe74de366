"""What fusions ask of operands: element types, sizes that are known, and constants that do not widen anything."""

from __future__ import annotations

from collections.abc import Collection

from ort_core.ir.constants import Constant
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.rewrite.matcher import Match, constant_of

ONNXRUNTIME = "com.microsoft"
FUSED_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})  # onnxruntime has no others for most
Dim = "int | SymbolicDim | None"


def dtype_of(value: Value | None) -> DataType:
    """Return the element type of a tensor, ``UNDEFINED`` when it is not known."""
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else DataType.UNDEFINED


def refuse_dtype(value: Value, node: Node, allowed: frozenset[DataType] = FUSED_FLOATS) -> Rejection | None:
    """Return a rejection when the element type is not one that the fused operator has."""
    dtype = dtype_of(value)
    if dtype in allowed:
        return None
    return Rejection(f"{value.name!r} is {dtype.text}, the fused operator needs one of {_names(allowed)}", node)


def _names(allowed: frozenset[DataType]) -> str:
    return ", ".join(sorted(dtype.text for dtype in allowed))


def refuse_widening(match: Match, value: Value) -> Rejection | None:
    """Return a rejection when a one-element constant among the matched nodes has more dimensions than ``value``."""
    rank = value.rank
    for node in match.nodes:
        for operand in node.present_inputs():
            found = constant_of(operand)
            if found is None or found.size != 1 or len(found.shape) == 0:
                continue
            if node.op_type not in _ELEMENTWISE or (rank is not None and len(found.shape) <= rank):
                continue
            return Rejection(f"constant {operand.name!r} may add dimensions to {value.name!r}", node)
    return None


_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})


def dim(value: Value, axis: int) -> int | SymbolicDim | None:
    """Return the size of an axis (counted from the end when negative), ``None`` when it is not known."""
    shape = value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis]


def fixed_dim(value: Value, axis: int) -> int | None:
    """Return the size of an axis where it is a number, else ``None``."""
    size = dim(value, axis)
    return size if isinstance(size, int) else None


def has_equal_shapes(left: Value, right: Value) -> bool:
    """Return whether two tensors are known to have the same shape."""
    return left.shape is not None and None not in left.shape and left.shape == right.shape


def same_dim(left: int | SymbolicDim | None, right: int | SymbolicDim | None) -> bool:
    """Return whether two sizes are known and equal."""
    return left is not None and left == right


def is_vector_of(value: Value, size: int | SymbolicDim | None) -> bool:
    """Return whether a tensor is known to have one axis, of this known size."""
    return value.rank == 1 and same_dim(dim(value, 0), size)


def integers_of(value: Value | None) -> tuple[int, ...] | None:
    """Return the elements of a small fixed integer constant, or ``None``."""
    found = constant_of(value)
    if found is None or not found.dtype.is_integer or found.size > 64:
        return None
    return tuple(int(item) for item in found.array().reshape(-1))


def number_of(value: Value | None) -> float | None:
    """Return the one element of a fixed constant, or ``None``."""
    found = constant_of(value)
    if found is None or found.size != 1 or not (found.dtype.is_float or found.dtype.is_integer):
        return None
    return float(found.array().reshape(-1)[0])


def is_one_element(found: Constant) -> bool:
    """Return whether a constant has one element that is a number."""
    return found.size == 1 and (found.dtype.is_float or found.dtype.is_integer)


def refuse_attributes(node: Node, taken: Collection[str], ones: Collection[str] = ()) -> Rejection | None:
    """Return a rejection when a node has an attribute that its fused form would lose.

    Args:
        node: the node that is replaced.
        taken: the attributes that the fused form takes over.
        ones: those that it lacks, and that say nothing where they are ones.
    """
    for name in node.attributes:
        says_nothing = name in ones and all(number == 1 for number in node.ints_attribute(name) or ())
        if name not in taken and not says_nothing:
            return Rejection(f"the fused operator has no {name!r}", node)
    return None


def only_reader(value: Value) -> Node | None:
    """Return the node that alone reads a value that the graph does not return, or ``None``."""
    readers = value.consumers()
    return readers[0] if len(readers) == 1 and not value.is_graph_output else None


def stands_before(value: Value, place: Node) -> bool:
    """Return whether a value is made before a node of the same graph, so that the node may read it."""
    made_by = value.producer
    if made_by is None:
        return value.graph is place.graph
    if made_by.graph is not place.graph or place.graph is None:
        return False
    return next((each is made_by for each in place.graph if each is made_by or each is place), False)


def first_refusal(*found: Rejection | None) -> Rejection | None:
    """Return the first rejection (which is falsy, so ``or`` would lose it), ``None`` if there is none."""
    return next((each for each in found if each is not None), None)
