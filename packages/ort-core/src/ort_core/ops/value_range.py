"""Interval analysis: between which bounds the elements of an integer tensor lie, without running anything.

An interval is (lowest, highest), both inclusive. Bounds come from constants, from what inference knows of elements,
from sizes (never negative), and from arithmetic on intervals; what is not understood has the bounds of its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ort_core.ir.constants import Constant
from ort_core.ir.dims import Call, KnownDim, Symbol, SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.ops.constant_node import constant_of_node
from ort_core.ops.symbolic_values import Element, SymbolicValue, is_non_negative

Interval = tuple[int, int]
MAX_SIZE = 2**63 - 1  # sizes are int64
_EXACT_DOUBLES = 2**53  # above, neighboring integers are one double
_BITS_OF_SIZES = 32  # of types in which arithmetic on sizes is followed
_MAX_CONSTANT = 1 << 20  # elements; token tables are below, weights far above
_MAX_DEPTH = 200  # nodes in a chain; beyond, the bounds of the type are good enough


class ValueRanges:
    """Intervals of the values of one model, found when first asked for.

    Args:
        values: what inference found of elements (``InferenceReport.values``).
        sizes: bounds of named sizes, where the caller knows them.
        given: returns bounds of a value that the caller answers for, ``None`` for others; asked each time.
    """

    def __init__(
        self,
        values: Mapping[Value, SymbolicValue] | None = None,
        sizes: Mapping[str, Interval] | None = None,
        given: Callable[[Value], Interval | None] = lambda value: None,
    ) -> None:
        self._values = values or {}
        self._sizes = sizes or {}
        self._given = given
        self._known: dict[Value, Interval | None] = {}

    def value_range(self, value: Value) -> Interval | None:
        """Return the interval of an integer or boolean tensor, ``None`` for values of other types."""
        return self._range(value, 0)

    def fits(self, value: Value, dtype: DataType) -> bool:
        """Return whether every element is representable in an integer element type."""
        found, limits = self.value_range(value), type_interval(dtype)
        return found is not None and limits is not None and limits[0] <= found[0] and found[1] <= limits[1]

    def _range(self, value: Value | None, depth: int) -> Interval | None:
        if value is None:
            return None
        given = self._given(value)
        if given is not None:
            return given
        if value in self._known:
            return self._known[value]
        limits = type_interval(value.type.dtype) if isinstance(value.type, TensorType) else None
        if limits is None:
            return None
        found = self._find(value, depth) if depth < _MAX_DEPTH else None
        result = limits if found is None else _within(found, limits)
        if depth < _MAX_DEPTH:
            self._known[value] = result
        return result

    def _find(self, value: Value, depth: int) -> Interval | None:
        if value.constant is not None:
            if value.is_graph_input or value.constant.size > _MAX_CONSTANT:
                return None
            return _of_array(value.constant.array())
        elements = self._values.get(value)
        if elements is not None:
            known = self._of_elements(elements)
            if known is not None:
                return known
        node = value.producer
        if node is None or node.domain:
            return None
        if node.op_type == "ReduceSum":
            return self._sum_range(node, depth)
        if node.op_type in _WITH_INDICES and value.output_index > 0:
            rule: RangeRule | None = _index if node.op_type == "TopK" else _count
        else:
            rule = _RULES.get(node.op_type)
        return None if rule is None else rule(node, lambda index: self._range(node.input(index), depth + 1))

    def _sum_range(self, node: Node, depth: int) -> Interval | None:
        """Return the interval of sums of all elements, which holds sums of fewer and of none, too."""
        found, data = self._range(node.input(0), depth + 1), node.input(0)
        sizes = None if data is None or data.shape is None else data.shape
        if found is None or sizes is None or any(size is None for size in sizes):
            return None
        most = math.prod(self.size_range(size)[1] for size in sizes if size is not None)
        return min(found[0] * most, 0, found[0]), max(found[1] * most, 0, found[1])

    def _of_elements(self, elements: SymbolicValue) -> Interval | None:
        bounds = []
        for element in elements.reshape(-1):
            if element is None or isinstance(element, float):
                return None
            bounds.append(self.size_range(element))
        if not bounds:
            return None
        # Sizes of tensors that exist do not overflow, however large their factors might be.
        return max(min(b[0] for b in bounds), -MAX_SIZE), min(max(b[1] for b in bounds), MAX_SIZE)

    def size_range(self, size: KnownDim) -> Interval:
        """Return the interval of a symbolic size."""
        if isinstance(size, int):
            return size, size
        total: Interval = (0, 0)
        for monomial, coefficient in size.terms:
            term: Interval = (coefficient, coefficient)
            for atom, power in monomial:
                for _ in range(power):
                    term = _multiply(term, self._atom_range(atom))
            total = _add(total, term)
        return total

    def _atom_range(self, atom: Symbol | Call) -> Interval:
        if isinstance(atom, Symbol):
            return self._sizes.get(atom.name, (0, MAX_SIZE))
        bounds = [self.size_range(argument) for argument in atom.arguments]
        low, high = [b[0] for b in bounds], [b[1] for b in bounds]
        if atom.function == "max":
            return max(low), max(high)
        if atom.function == "min":
            return min(low), min(high)
        if atom.function == "mod":
            return _remainder(bounds[0], bounds[1])
        if atom.function == "floordiv":
            return _quotient(bounds[0], bounds[1])
        return min(low), max(high)


def type_interval(dtype: DataType) -> Interval | None:
    """Return the bounds of an integer element type (0 and 1 for bool), ``None`` for other types."""
    if dtype is DataType.BOOL:
        return 0, 1
    if not dtype.is_integer:
        return None
    if dtype.name.startswith("U"):
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def in_range(elements: SymbolicValue, dtype: DataType) -> SymbolicValue:
    """Return elements as a tensor of an element type can hold them: those that it may hold otherwise are unknown.

    Integer arithmetic wraps around in a run, and floats of few bits round. Sizes of tensors fit 32 bits; so they are
    followed in types of as many, and in unsigned ones where they cannot be below 0. Other numbers are followed as far
    as doubles tell them apart.
    """
    interval = type_interval(dtype)
    beyond = [place for place, e in enumerate(elements.flat) if not _is_held(e, dtype, interval)]
    if not beyond:
        return elements
    found = elements.copy()
    found.flat[beyond] = None
    return found


def _is_held(element: Element, dtype: DataType, interval: Interval | None) -> bool:
    """Return whether a type holds a number, or every number that a size can be; it holds what is unknown, too."""
    if element is None:
        return True
    if isinstance(element, SymbolicDim):
        if dtype.bits < _BITS_OF_SIZES and (dtype.is_integer or dtype.is_float):
            return False
        return interval is None or interval[0] < 0 or is_non_negative(element)
    if dtype.is_float and dtype.bits < _BITS_OF_SIZES:
        return _is_exact(element, dtype)
    low, high = interval or (-_EXACT_DOUBLES, _EXACT_DOUBLES)
    return not isinstance(element, int) or low <= element <= high


def _is_exact(number: float, dtype: DataType) -> bool:
    """Return whether a type of floats has a number as it is."""
    with np.errstate(all="ignore"):
        held = float(np.float64(number).astype(dtype.numpy)) if abs(number) <= _EXACT_DOUBLES else math.nan
    return held == number


def _of_array(array: np.ndarray) -> Interval | None:
    if array.size == 0 or array.dtype == object:
        return None
    wide = array.astype(np.int64) if array.dtype.kind not in "iu" else array
    return int(wide.min()), int(wide.max())


def _within(found: Interval, limits: Interval) -> Interval:
    """Integer arithmetic wraps around: an interval beyond the limits of its type says nothing."""
    return found if limits[0] <= found[0] and found[1] <= limits[1] else limits


def _add(left: Interval, right: Interval) -> Interval:
    return left[0] + right[0], left[1] + right[1]


def _subtract(left: Interval, right: Interval) -> Interval:
    return left[0] - right[1], left[1] - right[0]


def _multiply(left: Interval, right: Interval) -> Interval:
    products = [a * b for a in left for b in right]
    return min(products), max(products)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide(left: Interval, right: Interval) -> Interval:
    """Bounds of a quotient rounded toward zero; dividing by an integer never makes a number larger."""
    if right[0] <= 0 <= right[1]:
        most = max(abs(left[0]), abs(left[1]))
        return (-most if left[0] < 0 or right[0] < 0 else 0), most
    quotients = [_truncated(a, b) for a in left for b in right]
    return min(quotients), max(quotients)


def _quotient(left: Interval, right: Interval) -> Interval:
    if right[0] <= 0:
        most = max(abs(left[0]), abs(left[1])) + 1
        return (-most if left[0] < 0 else 0), most
    quotients = [a // b for a in left for b in right]
    return min(quotients), max(quotients)


def _remainder(left: Interval, right: Interval) -> Interval:
    if right[0] > 0:
        return 0, min(right[1] - 1, left[1]) if left[0] >= 0 else right[1] - 1
    most = max(abs(right[0]), abs(right[1]))
    return -most, most


def _join(intervals: list[Interval | None]) -> Interval | None:
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) != len(intervals):
        return None
    return min(i[0] for i in known), max(i[1] for i in known)


Read = Callable[[int], "Interval | None"]
RangeRule = Callable[[Node, Read], "Interval | None"]


def _pass_through(node: Node, read: Read) -> Interval | None:
    return read(0)


def _two(function: Callable[[Interval, Interval], Interval]) -> RangeRule:
    def apply(node: Node, read: Read) -> Interval | None:
        left, right = read(0), read(1)
        return None if left is None or right is None else function(left, right)

    return apply


def _sizes(node: Node, read: Read) -> Interval | None:
    shape = None if node.input(0) is None else node.inputs[0].shape  # type: ignore[union-attr]  # just checked
    if shape is not None and shape and all(isinstance(d, int) for d in shape):
        return min(shape), max(shape)
    return 0, MAX_SIZE


def _number_of_elements(node: Node, read: Read) -> Interval | None:
    shape = None if node.input(0) is None else node.inputs[0].shape  # type: ignore[union-attr]  # just checked
    sizes = [d for d in shape or () if isinstance(d, int)]
    if shape is None or len(sizes) != len(shape):
        return 0, MAX_SIZE
    return math.prod(sizes), math.prod(sizes)


def _count(node: Node, read: Read) -> Interval | None:
    return 0, MAX_SIZE


def _all_inputs(node: Node, read: Read) -> Interval | None:
    return _join([read(index) for index in range(len(node.inputs))])


def _extreme(pick: Callable[..., int]) -> RangeRule:
    def apply(node: Node, read: Read) -> Interval | None:
        found = [read(index) for index in range(len(node.inputs))]
        known = [interval for interval in found if interval is not None]
        if not known or len(known) != len(found):
            return None
        return pick(i[0] for i in known), pick(i[1] for i in known)

    return apply


def _where(node: Node, read: Read) -> Interval | None:
    return _join([read(1), read(2)])


def _negate(node: Node, read: Read) -> Interval | None:
    found = read(0)
    return None if found is None else (-found[1], -found[0])


def _absolute(node: Node, read: Read) -> Interval | None:
    found = read(0)
    if found is None:
        return None
    low, high = sorted((abs(found[0]), abs(found[1])))
    return (0, high) if found[0] < 0 < found[1] else (low, high)


def _positive_part(node: Node, read: Read) -> Interval | None:
    found = read(0)
    return None if found is None else (max(found[0], 0), max(found[1], 0))


def _sign(node: Node, read: Read) -> Interval | None:
    return -1, 1


def _clip(node: Node, read: Read) -> Interval | None:
    found, low, high = read(0), read(1), read(2)
    if found is None:
        return None
    if low is not None:
        found = max(found[0], low[0]), max(found[1], low[1])
    if high is not None:
        found = min(found[0], high[0]), min(found[1], high[1])
    return found


def _bitwise(node: Node, read: Read) -> Interval | None:
    left, right = read(0), read(1)
    if left is None or right is None:
        return None
    lowest = min(left[0], right[0])
    reach = (1 << max(bound.bit_length() for bound in (*left, *right))) - 1
    return (0 if lowest >= 0 else -reach - 1), reach


def _index(node: Node, read: Read) -> Interval | None:
    """Indices of elements of one axis; sizes that are numbers bound them."""
    value = node.input(0)
    sizes = None if value is None or value.shape is None else value.shape
    axis = node.int_attribute("axis", -1 if node.op_type == "TopK" else 0)
    if node.op_type == "NonZero" or sizes is None or not -len(sizes) <= axis < len(sizes):
        known = [d for d in sizes or () if isinstance(d, int)]
        return (0, max(*known, 1) - 1) if sizes and len(known) == len(sizes) else (0, MAX_SIZE - 1)
    size = sizes[axis]
    return (0, max(size - 1, 0)) if isinstance(size, int) else (0, MAX_SIZE - 1)


def _data_and_updates(node: Node, read: Read) -> Interval | None:
    if node.string_attribute("reduction", "none") not in ("none", "max", "min"):
        return None
    return _join([read(0), read(2)])


def _modulo(node: Node, read: Read) -> Interval | None:
    left, right = read(0), read(1)
    if left is None or right is None:
        return None
    if node.int_attribute("fmod", 0) and left[0] < 0:  # the sign of the dividend, not of the divisor
        most = max(abs(right[0]), abs(right[1]))
        return -most, most
    return _remainder(left, right)


def _constant(node: Node, read: Read) -> Interval | None:
    constant = constant_of_node(node)
    return None if constant is None or constant.size > _MAX_CONSTANT else _of_array(constant.array())


def _reduced(node: Node, read: Read) -> Interval | None:
    """The extreme of nothing is the limit of the type, so no size may be 0."""
    shape = None if node.input(0) is None else node.inputs[0].shape  # type: ignore[union-attr]  # just checked
    return read(0) if shape is not None and all(isinstance(d, int) and d > 0 for d in shape) else None


def _filled(node: Node, read: Read) -> Interval | None:
    fill = node.attribute("value")
    return _of_array(fill.array()) if isinstance(fill, Constant) else (0, 0)


def _zero_or_one(node: Node, read: Read) -> Interval | None:
    return 0, 1


def _padded(node: Node, read: Read) -> Interval | None:
    if node.string_attribute("mode", "constant") != "constant":
        return read(0)
    fill: Interval | None = (0, 0) if node.input(2) is None else read(2)
    return _join([read(0), fill])


def _cast(node: Node, read: Read) -> Interval | None:
    value = node.input(0)
    if value is not None and isinstance(value.type, TensorType) and type_interval(value.type.dtype) is not None:
        return read(0)
    return None


def _one_hot(node: Node, read: Read) -> Interval | None:
    return read(2)


def _range(node: Node, read: Read) -> Interval | None:
    start, limit, delta = read(0), read(1), read(2)
    if start is None or limit is None or delta is None:
        return None
    if delta[0] > 0:
        return start[0], max(limit[1] - 1, start[0])
    if delta[1] < 0:
        return min(limit[0] + 1, start[1]), start[1]
    return None


_WITH_INDICES = ("TopK", "MaxPool", "Unique")  # operators whose further outputs are indices or counts
_RULES: dict[str, RangeRule] = {
    **dict.fromkeys(
        (
            "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Slice", "Split",
            "Gather", "GatherElements", "GatherND", "Compress", "DepthToSpace", "TopK", "Unique",
            "SpaceToDepth", "ReverseSequence", "MaxPool",
        ),
        _pass_through,
    ),
    "Add": _two(_add), "Sub": _two(_subtract), "Mul": _two(_multiply), "Div": _two(_divide),
    "Mod": _modulo, "Max": _extreme(max), "Min": _extreme(min), "Where": _where, "Concat": _all_inputs,
    "Neg": _negate, "Abs": _absolute, "Relu": _positive_part, "Sign": _sign, "Clip": _clip, "Cast": _cast,
    "Shape": _sizes, "Size": _number_of_elements, "ArgMax": _index, "ArgMin": _index, "NonZero": _index,
    "ScatterElements": _data_and_updates, "ScatterND": _data_and_updates, "Scatter": _data_and_updates,
    "Pad": _padded, "OneHot": _one_hot, "Range": _range, "SequenceLength": _count, "EyeLike": _zero_or_one,
    "Constant": _constant, "ReduceMax": _reduced, "ReduceMin": _reduced, "ConstantOfShape": _filled,
    "NonMaxSuppression": _count, "BitwiseAnd": _bitwise, "BitwiseOr": _bitwise, "BitwiseXor": _bitwise,
}  # fmt: skip
