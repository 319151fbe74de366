"""Prints scalar expressions as CUDA C++: statements for one element, and whole elementwise kernels around them.

    y = x * sigmoid(x)   ->   const float v0 = in0[i];  const float v1 = -v0;  ...  out[i] = v9;

The text needs ``PREAMBLE`` before it and no header, so that NVRTC, nvcc and an emulation on the CPU all take it. Sizes
and strides are arguments: one kernel serves every shape of its rank.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.loops.scalar import COMPARISONS, Scalar

TYPES = {
    DataType.FLOAT: "float", DataType.DOUBLE: "double", DataType.INT32: "int", DataType.INT64: "long long",
    DataType.BOOL: "bool", DataType.UINT8: "unsigned char", DataType.INT8: "signed char",
}  # fmt: skip
"""How elements lie in memory; a bool takes a byte."""

PREAMBLE = """\
template <typename T> __device__ __forceinline__ T ort_min(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> __device__ __forceinline__ T ort_max(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> __device__ __forceinline__ int ort_to_int(T v) {
  return v >= (T)2147483648.0 ? 2147483647 : v <= (T)-2147483648.0 ? -2147483647 - 1 : v != v ? 0 : (int)v;
}
template <typename T> __device__ __forceinline__ long long ort_to_int64(T v) {
  return v >= (T)9223372036854775808.0 ? 9223372036854775807LL
       : v <= (T)-9223372036854775808.0 ? -9223372036854775807LL - 1 : v != v ? 0 : (long long)v;
}
"""
"""Device functions that printed expressions call: NaN wins in min and max, conversions to integers saturate."""

THREADS_PER_BLOCK = 256  # a block of elementwise kernels; 128 to 512 differ by a few per cent on current devices

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_FLOAT_FUNCTIONS = {
    "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc",
}  # fmt: skip
DOUBLE_FUNCTIONS = frozenset(
    {"exp", "log", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
     "atanh"}
)  # fmt: skip
"""Operations on float64 that only CUDA has: calls of its own functions, and ``pow`` of two values."""

_WRAPPING = frozenset({"add", "sub", "mul", "shl"})  # of signed integers: defined in unsigned arithmetic only
_UNSIGNED = {DataType.INT32: "unsigned int", DataType.INT64: "unsigned long long"}
_BITCASTS = {
    (DataType.FLOAT, DataType.INT32): "__float_as_int", (DataType.INT32, DataType.FLOAT): "__int_as_float",
    (DataType.DOUBLE, DataType.INT64): "__double_as_longlong",
    (DataType.INT64, DataType.DOUBLE): "__longlong_as_double",
}  # fmt: skip
_ROUNDED_PRODUCTS = {DataType.FLOAT: "__fmul_rn", DataType.DOUBLE: "__dmul_rn"}
"""Products that the compiler never fuses with the sum behind them: it would round once less than two operators do."""

ReadValue = Callable[[int], str]


class InputLayout(enum.Enum):
    """How an elementwise kernel finds the element of an input: at the result's place, the only one, or by strides."""

    DENSE = "dense"
    SCALAR = "scalar"
    STRIDED = "strided"


@frozen
class PrintedExpression:
    """Statements that compute an expression, one constant each, and the text of its value."""

    statements: tuple[str, ...]
    result: str


@frozen
class PrintedKernel:
    """The source of one kernel, without ``PREAMBLE``, and the names of its parameters in order.

    The parameters: a pointer for each input, the pointer of the result, ``count``; where an input is strided also the
    sizes of axes 1 to rank - 1, and for each strided input the strides (in elements) of all axes. All but pointers
    are ``long long``. Any grid of any blocks computes all elements.
    """

    name: str
    source: str
    parameters: tuple[str, ...]


def print_expression(root: Scalar, read_input: ReadValue, read_row: ReadValue | None = None) -> PrintedExpression:
    """Return the statements for one element; a subexpression that occurs twice is computed once.

    Args:
        root: the expression.
        read_input: gives the text that reads the element of an input.
        read_row: gives the text of a value of the row; without it the expression may have none.

    Raises:
        ValueError: an element type or operation has no CUDA form.
    """
    statements, (result,) = print_expressions([root], read_input, read_row)
    return PrintedExpression(statements, result)


def print_expressions(
    roots: Sequence[Scalar], read_input: ReadValue, read_row: ReadValue | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the statements for one element of several expressions, and the text of each value.

    What expressions share is computed once. Arguments and errors are those of ``print_expression``.
    """
    printer = _Printer(read_input, read_row)
    results = tuple([printer.print(root) for root in roots])
    return tuple(printer.statements), results


def print_elementwise_kernel(
    root: Scalar, layouts: Sequence[InputLayout], rank: int, dtypes: Sequence[DataType], name: str | None = None
) -> PrintedKernel:
    """Return a kernel that computes an expression for every element of a dense result.

    Args:
        root: the expression over inputs 0 to ``len(layouts) - 1``.
        layouts: how each input is read.
        rank: the rank of the result; it counts only where an input is strided.
        dtypes: the element type of each input.
        name: the kernel's name; by default one made of its content.

    Raises:
        ValueError: as ``print_expression``.
    """
    strided = [index for index, layout in enumerate(layouts) if layout is InputLayout.STRIDED]
    expression = print_expression(root, lambda index: f"in{index}[{_position(index, layouts[index])}]")
    pointers = [f"const {type_text(dtype)}* __restrict__ in{index}" for index, dtype in enumerate(dtypes)]
    numbers = ["count"]
    if strided:
        numbers += [f"size{axis}" for axis in range(1, rank)]
        numbers += [f"stride{index}_{axis}" for index in strided for axis in range(rank)]
    parameters = [
        *pointers,
        f"{type_text(root.dtype)}* __restrict__ out",
        *(f"long long {number}" for number in numbers),
    ]
    body = [*coordinates("i", strided, rank), *expression.statements, f"out[i] = {expression.result};"]
    name = name or f"elementwise_{hashlib.sha256('|'.join([*parameters, *body]).encode()).hexdigest()[:16]}"
    lines = "\n".join(f"    {line}" for line in body)
    source = (
        f'extern "C" __global__ void {name}({", ".join(parameters)}) {{\n'
        "  const long long step = (long long)gridDim.x * blockDim.x;\n"
        "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {\n"
        f"{lines}\n  }}\n}}\n"
    )
    return PrintedKernel(name, source, tuple([f"in{i}" for i in range(len(dtypes))] + ["out", *numbers]))


def _position(index: int, layout: InputLayout) -> str:
    return {InputLayout.DENSE: "i", InputLayout.SCALAR: "0", InputLayout.STRIDED: f"at{index}"}[layout]


def coordinates(flat: str, strided: Sequence[int], rank: int) -> list[str]:
    """Return statements that turn a flat index into ``at{k}``, where each strided input ``k`` is read.

    They count through ``rank`` axes, the last one first, by ``size{axis}`` and ``stride{k}_{axis}``.
    """
    if not strided:
        return []
    lines = [f"long long rest = {flat};", *(f"long long at{index} = 0;" for index in strided)]
    for axis in range(rank - 1, -1, -1):
        coordinate = f"rest % size{axis}" if axis else "rest"
        lines.append(f"const long long c{axis} = {coordinate};")
        if axis:
            lines.append(f"rest /= size{axis};")
        lines += [f"at{index} += c{axis} * stride{index}_{axis};" for index in strided]
    return lines


class _Printer:
    """Appends one statement for each distinct operation."""

    def __init__(self, read_input: ReadValue, read_row: ReadValue | None) -> None:
        self.statements: list[str] = []
        self._read_input, self._read_row = read_input, read_row
        self._done: dict[int, str] = {}
        self._inputs: dict[int, str] = {}  # by index: expressions may have several objects for one input

    def print(self, root: Scalar) -> str:
        found = self._done.get(id(root))
        if found is None:
            found = self._done[id(root)] = self._printed(root)
        return found

    def _printed(self, node: Scalar) -> str:
        if node.operation == "constant":
            return constant(node.value, node.dtype)
        if node.operation == "input":
            if node.index not in self._inputs:
                self._inputs[node.index] = self._assigned(node.dtype, self._read_input(node.index))
            return self._inputs[node.index]
        if node.operation == "row":
            if self._read_row is None:
                raise ValueError("an elementwise kernel has no values of a row")
            return self._assigned(node.dtype, self._read_row(node.index))
        return self._assigned(node.dtype, _operation(node, [self.print(argument) for argument in node.arguments]))

    def _assigned(self, dtype: DataType, text: str) -> str:
        name = f"v{len(self.statements)}"
        self.statements.append(f"const {type_text(dtype)} {name} = {text};")
        return name


def _operation(node: Scalar, arguments: list[str]) -> str:
    operation, dtype = node.operation, node.dtype
    if operation == "select":
        return "{} ? {} : {}".format(*arguments)
    if operation == "fma":
        if not dtype.is_float:
            raise ValueError(f"fma of {dtype.text} has no CUDA form")
        return f"{_function('fma', dtype)}({', '.join(arguments)})"
    if operation == "bitcast":
        return _bitcast(node.arguments[0].dtype, dtype, arguments[0])
    if operation == "cast":
        return _cast(node.arguments[0].dtype, dtype, arguments[0])
    if len(arguments) == 2:
        return binary_text(operation, node.arguments[0].dtype, *arguments)
    return _unary(operation, dtype, arguments[0])


def binary_text(operation: str, dtype: DataType, left: str, right: str) -> str:
    """Return an operation on two values of a type, as text.

    Raises:
        ValueError: it has no CUDA form.
    """
    if operation in ("min", "max"):
        return f"ort_{operation}({left}, {right})"
    if operation == "rem":
        return f"{_function('fmod', dtype)}({left}, {right})" if dtype.is_float else f"{left} % {right}"
    if operation == "pow" and dtype is DataType.DOUBLE:
        return f"pow({left}, {right})"
    unsigned = _UNSIGNED.get(dtype)
    if operation == "lshr" and unsigned:
        return f"({type_text(dtype)})(({unsigned}){left} >> {right})"
    if operation == "mul" and dtype in _ROUNDED_PRODUCTS:
        return f"{_ROUNDED_PRODUCTS[dtype]}({left}, {right})"
    if operation not in _OPERATORS:
        raise ValueError(f"{operation} of {dtype.text} has no CUDA form")
    sign = _OPERATORS[operation]
    if operation in _WRAPPING and unsigned and operation not in COMPARISONS:
        return f"({type_text(dtype)})(({unsigned}){left} {sign} ({unsigned}){right})"
    return f"{left} {sign} {right}"


def _unary(operation: str, dtype: DataType, value: str) -> str:
    if operation == "is_nan":
        return f"{value} != {value}"
    if operation == "neg":
        return f"-{value}" if dtype.is_float else f"({type_text(dtype)})(0 - ({_UNSIGNED.get(dtype, 'int')}){value})"
    if operation == "not":
        return f"!{value}" if dtype is DataType.BOOL else f"~{value}"
    if dtype.is_float and operation in _FLOAT_FUNCTIONS:
        return f"{_function(_FLOAT_FUNCTIONS[operation], dtype)}({value})"
    if dtype is DataType.DOUBLE and operation in DOUBLE_FUNCTIONS:
        return f"{operation}({value})"
    if operation == "abs":
        return f"{value} < 0 ? ({type_text(dtype)})(0 - ({_UNSIGNED.get(dtype, 'int')}){value}) : {value}"
    if operation in ("floor", "ceil", "rint", "trunc"):
        return value  # of an integer
    raise ValueError(f"{operation} of {dtype.text} has no CUDA form")


def _cast(source: DataType, target: DataType, value: str) -> str:
    if source.is_float and target is DataType.INT32:
        return f"ort_to_int({value})"
    if source.is_float and target is DataType.INT64:
        return f"ort_to_int64({value})"
    return f"({type_text(target)}){value}"


def _bitcast(source: DataType, target: DataType, value: str) -> str:
    if source is target:
        return value
    if (source, target) not in _BITCASTS:
        raise ValueError(f"the bits of {source.text} as {target.text} have no CUDA form")
    return f"{_BITCASTS[source, target]}({value})"


def constant(value: float | int | bool, dtype: DataType) -> str:
    """Return the text of a constant that reads back as the same bits (a NaN as the standard one)."""
    if dtype is DataType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return _integer(int(value), dtype)
    exact = float(np.float32(value)) if dtype is DataType.FLOAT else float(value)
    if math.isfinite(exact):
        digits = f"{exact:.9g}" if dtype is DataType.FLOAT else f"{exact:.17g}"
        digits = digits if any(c in digits for c in ".e") else f"{digits}.0"
        text = f"{digits}f" if dtype is DataType.FLOAT else digits
        return f"({text})" if text.startswith("-") else text
    if dtype is DataType.FLOAT:
        bits = 0x7FC00000 if math.isnan(exact) else 0x7F800000
        text = f"__int_as_float(0x{bits:08x})"
    else:
        bits = 0x7FF8000000000000 if math.isnan(exact) else 0x7FF0000000000000
        text = f"__longlong_as_double(0x{bits:016x}LL)"
    return f"(-{text})" if exact < 0 else text


def _integer(value: int, dtype: DataType) -> str:
    if dtype.bits < 32:  # literals are int: a function template would be given two types
        return f"(({type_text(dtype)}){value})"
    suffix = "LL" if dtype is DataType.INT64 else ""
    least = -(2 ** (dtype.bits - 1))
    if value == least:  # the literal without its sign would be out of range
        return f"({value + 1}{suffix} - 1)"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"


def _function(name: str, dtype: DataType) -> str:
    return f"{name}f" if dtype is DataType.FLOAT else name


def type_text(dtype: DataType) -> str:
    """Return the CUDA type of an element.

    Raises:
        ValueError: there is none.
    """
    if dtype not in TYPES:
        raise ValueError(f"{dtype.text} has no CUDA form")
    return TYPES[dtype]
