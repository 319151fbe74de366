"""SizeWords: the sizes of a program as rows of words that native code evaluates, for any shapes of its inputs.

Each row is an operation on two registers; row ``i`` writes register ``i``, and constants lie in the registers behind.
They say what ``NativeProgram`` says in Python: atoms are read off the inputs, declared sizes are compared, sizes that
must be equal are, and none is negative. Where 64 bits are too few, native code gives up, as Python's numbers do not.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ort_core.cpu.program.sizes import SizeProgram
from ort_core.plugin import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.program.sizes import Binding
    from ort_core.plugin.ir import KnownDim

Words: TypeAlias = "npt.NDArray[np.int64]"
AxisSize = Callable[[int, int], "tuple[Operation, int, int] | int"]


class Operation(enum.IntEnum):
    """What a row does with registers ``a`` and ``b``."""

    SIZE = 0  # of axis b of input a, which are numbers here
    ADD = 1
    MULTIPLY = 2
    FLOOR_DIVIDE = 3
    MODULO = 4
    MAXIMUM = 5
    MINIMUM = 6
    BROADCAST = 7  # a, or b where a is 1
    MUST_EQUAL = 8
    MUST_NOT_BE_NEGATIVE = 9
    NUMBER = 10  # that input a is


_BINARY: dict[type[ast.operator], Operation] = {
    ast.Add: Operation.ADD, ast.Mult: Operation.MULTIPLY, ast.FloorDiv: Operation.FLOOR_DIVIDE,
    ast.Mod: Operation.MODULO,
}  # fmt: skip
_CALLS = {"max": Operation.MAXIMUM, "min": Operation.MINIMUM, "broadcast": Operation.BROADCAST}


@frozen
class SizeWords:
    """Rows of ``Operation``, a and b, and the registers: results, then constants."""

    rows: Words
    registers: Words


class SizeWordsState:
    """Rows and constants while they are collected; registers are numbered by rows, constants by negative numbers.

    Args:
        axis_size: for an input of the program and an axis the row that reads its size off an input of the call; or
            the size, where that is a constant.
    """

    def __init__(self, axis_size: AxisSize) -> None:
        self._axis_size = axis_size
        self._rows: list[tuple[int, int, int]] = []
        self._found: dict[tuple[int, int, int], int] = {}
        self._constants: dict[int, int] = {}
        self._atoms: dict[str, int] = {}

    def bind(self, bindings: Sequence[Binding]) -> None:
        """Read atoms off the inputs, in the order in which each can be solved."""
        for binding in bindings:
            size = self.axis(binding.index, binding.axis)
            rest = self._single(binding.rest)
            less = self.operated(Operation.MULTIPLY, rest, self.constant(-1))
            atom = self.operated(Operation.ADD, size, less)
            self._atoms[binding.atom] = self.operated(Operation.MULTIPLY, atom, self.constant(binding.sign))

    def axis(self, index: int, axis: int) -> int:
        """Return the register of an input's size."""
        found = self._axis_size(index, axis)
        return self.constant(found) if isinstance(found, int) else self.operated(*found)

    def constant(self, value: int) -> int:
        """Return the register of a number.

        Raises:
            OverflowError: it needs more than 64 bits.
        """
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError("a size needs more than 64 bits")
        return self._constants.setdefault(value, -1 - len(self._constants))

    def must_equal(self, left: int, right: int) -> None:
        """Let runs in which two registers differ be given up."""
        if left != right:
            self.operated(Operation.MUST_EQUAL, left, right)

    def must_not_be_negative(self, register: int) -> None:
        """Let runs in which a register is negative be given up."""
        if register >= 0:
            self.operated(Operation.MUST_NOT_BE_NEGATIVE, register, register)

    def evaluated(self, program: SizeProgram) -> list[int]:
        """Return the registers of a program's values; all but fixed numbers are those of rows."""
        names, fixed, source, symbolic = program.to_data()
        scope = {f"n{number}": self._atoms[name] for number, name in enumerate(names)}
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        (returned,) = function.body
        assert isinstance(returned, ast.Return)
        assert isinstance(returned.value, ast.List)
        distinct = [self._register(each, scope) for each in returned.value.elts]
        found = [self.constant(value) for value in fixed]
        for place, number in symbolic:
            found[place] = distinct[number]
        return found

    def finished(self) -> SizeWords:
        """Return the rows, with registers as they lie in memory."""
        rows = np.array(self._rows, np.int64).reshape(-1, 3)
        are_registers = ~np.isin(rows[:, 0], (Operation.SIZE, Operation.NUMBER))
        rows[are_registers, 1:] = self.places(rows[are_registers, 1:])
        return SizeWords(rows, np.array([0] * len(rows) + list(self._constants), np.int64))

    def places(self, registers: Sequence[int] | Words) -> Words:
        """Return where registers lie once all rows are there."""
        numbers = np.asarray(registers, np.int64)
        return np.where(numbers < 0, len(self._rows) - 1 - numbers, numbers)

    def _single(self, size: KnownDim) -> int:
        return self.constant(size) if isinstance(size, int) else self.evaluated(SizeProgram([size], self._atoms))[0]

    def _register(self, term: ast.expr, scope: dict[str, int]) -> int:
        match term:
            case ast.Constant(value=int(value)):
                return self.constant(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return self.constant(-value)
            case ast.Name(id=name):
                return scope[name]
            case ast.BinOp(left=left, op=kind, right=right):
                return self.operated(_BINARY[type(kind)], self._register(left, scope), self._register(right, scope))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                *others, found = [self._register(each, scope) for each in arguments]
                for other in reversed(others):
                    found = self.operated(_CALLS[name], other, found)
                return found
        raise ValueError(f"{ast.unparse(term)} is no size")

    def operated(self, operation: Operation, left: int, right: int) -> int:
        """Return the register of a row."""
        if operation is Operation.MULTIPLY and self.constant(1) in (left, right):
            return left if right == self.constant(1) else right
        if operation is Operation.ADD and self.constant(0) in (left, right):
            return left if right == self.constant(0) else right
        if operation is Operation.MULTIPLY and self.constant(0) in (left, right):
            return self.constant(0)
        row = (int(operation), left, right)
        found = self._found.get(row)
        if found is None:
            found = self._found[row] = len(self._rows)
            self._rows.append(row)
        return found
