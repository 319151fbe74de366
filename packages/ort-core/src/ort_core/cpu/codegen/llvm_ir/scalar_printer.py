"""Prints scalar expressions as LLVM IR, for one element or for a vector of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, suffix, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import COMPARISONS, SMALL_TYPES, Scalar, integer_range

TYPES = {
    DataType.FLOAT: "float", DataType.DOUBLE: "double", DataType.INT32: "i32", DataType.INT64: "i64",
    DataType.FLOAT16: "half", DataType.BFLOAT16: "i16", DataType.BOOL: "i1",
    DataType.UINT8: "i8", DataType.INT8: "i8", DataType.UINT16: "i16", DataType.INT16: "i16",
    DataType.UINT32: "i32", DataType.UINT64: "i64", **dict.fromkeys(SMALL_TYPES, "i8"),
}  # fmt: skip
STORED = {**TYPES, DataType.BOOL: "i8"}
"""How elements lie in memory: a bool takes a byte. Of bfloat16 and small types only bits are stored, no numbers."""

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INTEGER = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem", "and": "and", "or": "or", "xor": "xor",
    "shl": "shl", "lshr": "lshr", "ashr": "ashr",
}  # fmt: skip
_FLOAT_CALLS = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}

_UNSIGNED_FORMS = {
    "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "div": "udiv", "rem": "urem", "ashr": "lshr",
}  # fmt: skip
_UNSIGNED = frozenset({DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64})

ReadInput = Callable[[int], IRValue]


class ScalarPrinter:
    """Prints expressions into an emitter; a subexpression that occurs twice is printed once.

    Args:
        emitter: where instructions go.
        width: elements per value; 1 for scalars.
        read_input: gives the loaded value of an input, of ``width`` elements, in register form (bool as i1).
        read_row: gives a value of the row, of ``width`` equal elements.
    """

    def __init__(self, emitter: Emitter, width: int, read_input: ReadInput, read_row: ReadInput | None = None) -> None:
        self._emitter = emitter
        self._width = width
        self._read_input = read_input
        self._read_row = read_row
        self._done: dict[int, IRValue] = {}
        self._kept: list[Scalar] = []

    def print(self, root: Scalar) -> IRValue:
        """Append the instructions of an expression and return its value."""
        found = self._done.get(id(root))
        if found is None:
            arguments = [self.print(argument) for argument in root.arguments]
            found = self._done[id(root)] = self._instruction(root, arguments)
            self._kept.append(root)  # an id is only unique while the object lives
        return found

    def _instruction(self, node: Scalar, arguments: list[IRValue]) -> IRValue:
        emitter = self._emitter
        type_ = vector_type(self._width, TYPES[node.dtype])
        operation = node.operation
        if operation == "input":
            return self._read_input(node.index)
        if operation == "row":
            assert self._read_row is not None
            return self._read_row(node.index)
        if operation == "constant":
            return constant(node.value, node.dtype, self._width)
        if operation == "select":
            return emitter.select(*arguments)
        if operation == "fma":
            return emitter.fma(*arguments)
        if operation == "bitcast":
            return emitter.assign(type_, f"bitcast {arguments[0].typed} to {type_}")
        if operation == "cast":
            return self._cast(node, arguments[0], type_)
        is_float = node.arguments[0].dtype.is_float
        if operation in COMPARISONS:
            kind, names = ("fcmp", _ORDERED) if is_float else ("icmp", _SIGNED)
            if node.arguments[0].dtype in _UNSIGNED:
                names = {**names, **_UNSIGNED_FORMS}
            text = f"{kind} {names[operation]} {arguments[0].typed}, {arguments[1].text}"
            return emitter.assign(vector_type(self._width, "i1"), text)
        if len(arguments) == 2:
            return self._binary(node, type_, arguments, is_float)
        return self._unary(operation, type_, arguments[0], node.arguments[0].dtype)

    def _binary(self, node: Scalar, type_: str, arguments: list[IRValue], is_float: bool) -> IRValue:
        left, right = arguments
        operation, is_unsigned = node.operation, node.dtype in _UNSIGNED
        if operation in ("min", "max"):
            if not is_float:
                name = f"llvm.{'u' if is_unsigned else 's'}{operation}"
                return self._emitter.call(type_, f"{name}.{suffix(type_)}", left, right)
            if _is_number(node.arguments[0]):
                left, right = right, left
            if _is_number(node.arguments[0]) or _is_number(node.arguments[1]):
                return self._bounded(operation, left, right)
            return self._minimum(operation, left, right)
        opcode = (_FLOAT if is_float else _INTEGER)[operation]
        opcode = _UNSIGNED_FORMS.get(operation, opcode) if is_unsigned else opcode
        return self._emitter.assign(type_, f"{opcode} {left.typed}, {right.text}")

    def _bounded(self, operation: str, value: IRValue, bound: IRValue) -> IRValue:
        # No comparison with NaN holds, so NaN stays; in this order it is one instruction of x86.
        predicate = "olt" if operation == "min" else "ogt"
        emitter, bits = self._emitter, vector_type(self._width, "i1")
        return emitter.select(emitter.assign(bits, f"fcmp {predicate} {bound.typed}, {value.text}"), bound, value)

    def _minimum(self, operation: str, left: IRValue, right: IRValue) -> IRValue:
        # NaN of either side wins: an unordered comparison takes the left, an ordered one with the right NaN the right.
        predicate = "ult" if operation == "min" else "ugt"
        emitter, bits = self._emitter, vector_type(self._width, "i1")
        takes_left = emitter.assign(bits, f"fcmp {predicate} {left.typed}, {right.text}")
        chosen = emitter.select(takes_left, left, right)
        is_nan = emitter.assign(bits, f"fcmp uno {right.typed}, {right.text}")
        return emitter.select(is_nan, right, chosen)

    def _unary(self, operation: str, type_: str, value: IRValue, dtype: DataType) -> IRValue:
        emitter, is_float = self._emitter, dtype.is_float
        if operation == "is_nan":
            return emitter.assign(vector_type(self._width, "i1"), f"fcmp uno {value.typed}, {value.text}")
        if operation == "neg":
            return emitter.assign(
                type_, f"fneg {value.typed}" if is_float else f"sub {type_} {zero(type_)}, {value.text}"
            )
        if operation == "not":
            ones = constant(True if dtype is DataType.BOOL else -1, dtype, self._width)
            return emitter.assign(type_, f"xor {value.typed}, {ones.text}")
        if is_float:
            return emitter.call(type_, f"llvm.{_FLOAT_CALLS[operation]}.{suffix(type_)}", value)
        assert operation == "abs", operation
        return emitter.call(type_, f"llvm.abs.{suffix(type_)}", value, IRValue("i1", "false"))

    def _cast(self, node: Scalar, value: IRValue, type_: str) -> IRValue:
        source, target = node.arguments[0].dtype, node.dtype
        if DataType.BFLOAT16 in (source, target):
            return self._cast_bfloat16(value, source, target)
        if source.is_float:
            opcode = "fptosi" if not target.is_float else "fpext" if target.bits > source.bits else "fptrunc"
            if opcode == "fptosi" and target.bits < 32:
                return self._saturated_narrow(value, type_, target)
            if opcode == "fptosi":
                return self._saturated(value, type_, target.bits)
        elif target.is_float:
            opcode = "uitofp" if source is DataType.BOOL or source in _UNSIGNED else "sitofp"
        elif target.bits == source.bits and source is not DataType.BOOL:
            return value
        elif source is DataType.BOOL or (source in _UNSIGNED and target.bits > source.bits):
            opcode = "zext"
        else:
            opcode = "sext" if target.bits > source.bits else "trunc"
        return self._emitter.assign(type_, f"{opcode} {value.typed} to {type_}")

    def _cast_bfloat16(self, value: IRValue, source: DataType, target: DataType) -> IRValue:
        """Widen bfloat16 to float32, or round float32 to the nearest, ties to even; without any instruction for it."""
        emitter, width = self._emitter, self._width
        words, halves = vector_type(width, "i32"), vector_type(width, "i16")
        if source is DataType.BFLOAT16:
            assert target is DataType.FLOAT, target
            wide = emitter.assign(words, f"zext {value.typed} to {words}")
            high = emitter.assign(words, f"shl {wide.typed}, {self._integers(words, 16).text}")
            return emitter.assign(vector_type(width, "float"), f"bitcast {high.typed} to {vector_type(width, 'float')}")
        assert source is DataType.FLOAT, source
        bits = emitter.assign(words, f"bitcast {value.typed} to {words}")
        high = emitter.assign(words, f"lshr {bits.typed}, {self._integers(words, 16).text}")
        odd = emitter.assign(words, f"and {high.typed}, {self._integers(words, 1).text}")
        added = emitter.assign(words, f"add {odd.typed}, {self._integers(words, 0x7FFF).text}")
        rounded = emitter.assign(words, f"add {bits.typed}, {added.text}")
        rounded = emitter.assign(words, f"lshr {rounded.typed}, {self._integers(words, 16).text}")
        quiet = emitter.assign(words, f"or {high.typed}, {self._integers(words, 0x40).text}")
        is_nan = emitter.assign(vector_type(width, "i1"), f"fcmp uno {value.typed}, {value.text}")
        chosen = emitter.select(is_nan, quiet, rounded)
        return emitter.assign(halves, f"trunc {chosen.typed} to {halves}")

    def _saturated_narrow(self, value: IRValue, type_: str, target: DataType) -> IRValue:
        """Convert to integers below 32 bits: limited in floats, where the limits are exact; NaN gives the least.

        A minimum and a maximum, one instruction each.
        """
        emitter, flags = self._emitter, vector_type(self._width, "i1")
        dtype = DataType.DOUBLE if "double" in value.type else DataType.FLOAT
        low, high = integer_range(target)
        for predicate, limit in (("ogt", low), ("olt", high)):
            bound = constant(float(limit), dtype, self._width)
            value = emitter.select(emitter.assign(flags, f"fcmp {predicate} {value.typed}, {bound.text}"), value, bound)
        wide = vector_type(self._width, "i32")
        whole = emitter.assign(wide, f"fptosi {value.typed} to {wide}")
        return emitter.assign(type_, f"trunc {whole.typed} to {type_}")

    def _saturated(self, value: IRValue, type_: str, bits: int) -> IRValue:
        """Convert to integers; out of range gives the nearest integer, NaN 0, as a plain conversion leaves undefined.

        LLVM takes its own saturating conversion of x86 vectors apart into single elements: exp became 6 x slower.
        """
        emitter, flags = self._emitter, vector_type(self._width, "i1")
        dtype = DataType.DOUBLE if "double" in value.type else DataType.FLOAT
        low, high = (constant(limit, dtype, self._width) for limit in (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)))
        is_high = emitter.assign(flags, f"fcmp oge {value.typed}, {high.text}")
        is_low = emitter.assign(flags, f"fcmp ole {value.typed}, {low.text}")
        size = emitter.call(value.type, f"llvm.fabs.{suffix(value.type)}", value)
        is_inside = emitter.assign(flags, f"fcmp olt {size.typed}, {high.text}")
        inside = emitter.select(is_inside, value, constant(0.0, dtype, self._width))
        whole = emitter.assign(type_, f"fptosi {inside.typed} to {type_}")
        whole = emitter.select(is_high, self._integers(type_, 2 ** (bits - 1) - 1), whole)
        return emitter.select(is_low, self._integers(type_, -(2 ** (bits - 1))), whole)

    def _integers(self, type_: str, value: int) -> IRValue:
        element = type_ if self._width == 1 else type_[1:-1].partition(" x ")[2]
        lanes = ", ".join([f"{element} {value}"] * self._width)
        return IRValue(type_, str(value) if self._width == 1 else f"<{lanes}>")


def converts_halves(target: Target) -> bool:
    """Return whether float16 converts by an instruction; without one LLVM calls a library that need not be there."""
    return target.has("f16c") or target.triple.startswith(("aarch64", "arm64"))


def _is_number(node: Scalar) -> bool:
    return node.operation == "constant" and not math.isnan(node.value)


def constant(value: float | int | bool, dtype: DataType, width: int) -> IRValue:
    """Return a constant of a type in every lane."""
    element = TYPES[dtype]
    if dtype.is_float:
        text = _float_text(float(value), dtype)
    else:
        text = ("true" if value else "false") if dtype is DataType.BOOL else str(int(value))
    if width == 1:
        return IRValue(element, text)
    return IRValue(vector_type(width, element), f"<{', '.join([f'{element} {text}'] * width)}>")


def zero(type_: str) -> str:
    """Return the text of zero for an integer type or a vector of them."""
    return "zeroinitializer" if type_.startswith("<") else "0"


def _float_text(value: float, dtype: DataType) -> str:
    if dtype is DataType.FLOAT and math.isfinite(value):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
