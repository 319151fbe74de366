"""Modules of one product, and epilogues of one idea each: what the compiler's expressions are tested beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, module_text
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, zero
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import bfloat16_functions
from ort_core.cpu.codegen.products.epilogue import Epilogue
from ort_core.cpu.codegen.products.matrix_product import Blocking, product_functions


def product_text(
    name: str,
    target: Target,
    *,
    packed: bool,
    epilogue: Epilogue | None = None,
    blocking: Blocking | None = None,
    word: str = "float",
) -> str:
    """Return the module of ``product_functions``."""
    return module_text(product_functions(name, target, packed=packed, epilogue=epilogue, blocking=blocking, word=word))


def bfloat16_text(name: str, target: Target, *, epilogue: Epilogue | None = None) -> str:
    """Return the module of ``bfloat16_functions``."""
    return module_text(bfloat16_functions(name, target, epilogue=epilogue))


@dataclass(slots=True)
class Scale:
    """``value * alpha``; the argument holds the bits of a float64, or those of a float32 in its low half."""

    argument: int
    _alpha: IRValue | None = field(default=None, init=False)

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load alpha."""
        self._alpha = emitter.load(emitter.word, emitter.element(args, self.argument, "i64"))

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the product with alpha."""
        assert self._alpha is not None
        return emitter.binary("fmul", value, emitter.splat(self._alpha, width))


@dataclass(slots=True)
class Bias:
    """``value + bias[column]``; the argument is the pointer to a contiguous vector."""

    argument: int
    _bias: IRValue | None = field(default=None, init=False)

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load the pointer."""
        self._bias = emitter.argument(args, self.argument, "ptr")

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the sum with the bias of the columns."""
        assert self._bias is not None
        bias = load_vector(emitter, emitter.element(self._bias, column), width, mask)
        return emitter.binary("fadd", value, bias)


@dataclass(slots=True)
class Residual:
    """``value + residual[batch, row, column]``.

    Arguments from ``argument`` on: the pointer, the row stride, and four batch strides, in elements; columns are
    contiguous. A stride of 0 broadcasts.
    """

    argument: int
    _start: IRValue | None = field(default=None, init=False)
    _row: IRValue | None = field(default=None, init=False)

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load the pointer to the batch entry's matrix and the row stride."""
        start = emitter.argument(args, self.argument, "ptr")
        for i, index in enumerate(batch):
            offset = emitter.mul(index, emitter.argument(args, self.argument + 2 + i))
            start = emitter.element(start, offset)
        self._start, self._row = start, emitter.argument(args, self.argument + 1)

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the sum with the residual's elements."""
        assert self._start is not None
        assert self._row is not None
        place = emitter.element(self._start, emitter.add(emitter.mul(row, self._row), column))
        return emitter.binary("fadd", value, load_vector(emitter, place, width, mask))


@dataclass(frozen=True, slots=True)
class Rectifier:
    """``max(value, 0)``; NaN stays NaN."""

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Nothing to load."""

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the value where it is not negative."""
        condition = emitter.assign(f"<{width} x i1>", f"fcmp olt {value.typed}, zeroinitializer")
        return emitter.select(condition, zero(value.type), value)


@dataclass(frozen=True, slots=True)
class Chain:
    """Epilogues one after another."""

    parts: tuple[Epilogue, ...]

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Prepare each."""
        for part in self.parts:
            part.prepare(emitter, args, batch)

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Apply each to what the one before it gives."""
        for part in self.parts:
            value = part.apply(emitter, value, row, column, width, mask)
        return value
