"""Scalar expressions: what one element of a result is, as a graph of primitive operations on typed scalars.

A printer (LLVM IR for the CPU, CUDA C++ for a GPU) walks the graph; shared subexpressions are the same object, so
each is printed once. Primitives mean what IEEE 754 and two's complement say; ``min`` and ``max`` return NaN when
either side is NaN, as numpy and ONNX do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from ort_core.frozen import frozen
from ort_core.ir.types import DataType

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
ROW_REDUCTIONS = frozenset({"row_sum", "row_prod", "row_max", "row_min", "row_peak"})
KEPT_TEXTS = 256  # of expressions: layers share theirs, and ask for the text again and again; some 10 KB each


@frozen
class Scalar:
    """One operation. Compared by identity: the graph's sharing is meant.

    ``operation`` is ``input`` (``index`` says which), ``constant`` (``value``), ``row`` (a value of the row, by
    ``index``), ``cast``, ``bitcast``, ``select``, ``fma``, ``row_length`` (see ``rows``), or one of the sets above.
    """

    operation: str
    dtype: DataType
    arguments: tuple[Scalar, ...] = ()
    index: int = 0
    value: float | int | bool = 0

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __add__(self, other: Scalar | float) -> Scalar:
        return binary("add", self, other)

    def __radd__(self, other: float) -> Scalar:
        return binary("add", lift(other, self.dtype), self)

    def __sub__(self, other: Scalar | float) -> Scalar:
        return binary("sub", self, other)

    def __rsub__(self, other: float) -> Scalar:
        return binary("sub", lift(other, self.dtype), self)

    def __mul__(self, other: Scalar | float) -> Scalar:
        return binary("mul", self, other)

    def __rmul__(self, other: float) -> Scalar:
        return binary("mul", lift(other, self.dtype), self)

    def __truediv__(self, other: Scalar | float) -> Scalar:
        return binary("div", self, other)

    def __rtruediv__(self, other: float) -> Scalar:
        return binary("div", lift(other, self.dtype), self)

    def __neg__(self) -> Scalar:
        return unary("neg", self)

    def __abs__(self) -> Scalar:
        return unary("abs", self)

    def __lt__(self, other: Scalar | float) -> Scalar:
        return binary("lt", self, other)

    def __le__(self, other: Scalar | float) -> Scalar:
        return binary("le", self, other)

    def __gt__(self, other: Scalar | float) -> Scalar:
        return binary("gt", self, other)

    def __ge__(self, other: Scalar | float) -> Scalar:
        return binary("ge", self, other)

    def __bool__(self) -> bool:
        raise TypeError(
            "whether an expression holds is only known for each element: write select(condition, left, right) "
            "instead of if, and, or, not, min() and max()"
        )


def element(index: int, dtype: DataType) -> Scalar:
    """Return the element of input ``index`` at the place of the result."""
    return Scalar("input", dtype, index=index)


def row_value(index: int, dtype: DataType = DataType.FLOAT) -> Scalar:
    """Return the row's value ``index``: what an earlier stage reduced."""
    return Scalar("row", dtype, index=index)


def lift(value: Scalar | float | int | bool, dtype: DataType) -> Scalar:
    """Return a constant of a type, or the expression itself."""
    return value if isinstance(value, Scalar) else Scalar("constant", dtype, value=value)


def binary(operation: str, left: Scalar, right: Scalar | float | int | bool) -> Scalar:
    """Return an operation on two values of one type; comparisons give ``BOOL``."""
    other = lift(right, left.dtype)
    if left.dtype is not other.dtype:
        raise ValueError(f"{operation} of {left.dtype.text} and {other.dtype.text}; cast one of them")
    return Scalar(operation, DataType.BOOL if operation in COMPARISONS else left.dtype, (left, other))


def unary(operation: str, value: Scalar) -> Scalar:
    """Return an operation on one value; ``is_nan`` gives ``BOOL``."""
    return Scalar(operation, DataType.BOOL if operation == "is_nan" else value.dtype, (value,))


def minimum(left: Scalar, right: Scalar | float) -> Scalar:
    """The smaller value, NaN if either is."""
    return binary("min", left, right)


def maximum(left: Scalar, right: Scalar | float) -> Scalar:
    """The larger value, NaN if either is."""
    return binary("max", left, right)


def select(condition: Scalar, left: Scalar | float, right: Scalar | float, dtype: DataType | None = None) -> Scalar:
    """``left`` where the condition holds, else ``right``."""
    known = left if isinstance(left, Scalar) else right if isinstance(right, Scalar) else None
    of = known.dtype if known is not None else dtype or DataType.FLOAT
    return Scalar("select", of, (condition, lift(left, of), lift(right, of)))


def fma(a: Scalar, b: Scalar | float, c: Scalar | float) -> Scalar:
    """``a * b + c``, rounded once."""
    return Scalar("fma", a.dtype, (a, lift(b, a.dtype), lift(c, a.dtype)))


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Return a polynomial by Horner's scheme; its coefficients are given from the highest power down."""
    total = lift(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        total = fma(total, x, coefficient)
    return total


def cast(value: Scalar, dtype: DataType) -> Scalar:
    """Convert the value as C does (float to integer truncates)."""
    return value if value.dtype is dtype else Scalar("cast", dtype, (value,))


def bitcast(value: Scalar, dtype: DataType) -> Scalar:
    """The same bits, read as another type of the same width."""
    return Scalar("bitcast", dtype, (value,))


def integer_range(dtype: DataType) -> tuple[int, int]:
    """Return the least and the largest number of an integer type."""
    if dtype.text.startswith("u"):
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def rebuilt(root: Scalar, replacement: Callable[[Scalar], Scalar | None]) -> Scalar:
    """Return the expression made of new operations, some replaced as a whole; sharing is kept.

    ``replacement`` is asked of each operation once, and returns ``None`` for those that stay.
    """
    done: dict[int, Scalar] = {}

    def walk(node: Scalar) -> Scalar:
        if id(node) not in done:
            result = replacement(node)
            if result is None:
                arguments = tuple([walk(argument) for argument in node.arguments])
                result = Scalar(node.operation, node.dtype, arguments, node.index, node.value)
            done[id(node)] = result
        return done[id(node)]

    return walk(root)


def substitute(root: Scalar, inputs: Mapping[int, Scalar]) -> Scalar:
    """Return the expression with inputs replaced by expressions; sharing is kept."""
    done: dict[int, Scalar] = {}

    def walk(node: Scalar) -> Scalar:
        if id(node) in done:
            return done[id(node)]
        if node.operation == "input":
            result = inputs.get(node.index, node)
        elif node.arguments:
            arguments = tuple(walk(argument) for argument in node.arguments)
            same = all(a is b for a, b in zip(arguments, node.arguments, strict=True))
            result = node if same else Scalar(node.operation, node.dtype, arguments, node.index, node.value)
        else:
            result = node
        done[id(node)] = result
        return result

    return walk(root)


def operations(root: Scalar, below: Scalar | None = None) -> int:
    """Return the number of distinct operations, as a measure of cost; ``below`` and all it stands on count as one."""
    seen: set[int] = set() if below is None else {id(below)}
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack.extend(node.arguments)
    return len(seen)


@functools.lru_cache(KEPT_TEXTS)
def structure(*roots: Scalar) -> str:
    """Return a text that is equal for expressions of the same operations, constants and sharing, also among them."""
    numbers: dict[int, int] = {}
    lines: list[str] = []

    def walk(node: Scalar) -> int:
        known = numbers.get(id(node))
        if known is not None:
            return known
        arguments = [walk(argument) for argument in node.arguments]
        lines.append(f"{node.operation} {node.dtype._name_} {arguments} {node.index} {node.value!r}")
        number = numbers[id(node)] = len(numbers)
        return number

    ends = [walk(root) for root in roots]
    return ";".join(lines) if len(ends) == 1 else f"{';'.join(lines)} {ends}"
