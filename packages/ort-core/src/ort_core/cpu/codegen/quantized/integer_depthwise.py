"""A tile of a depthwise convolution of bytes: each output channel reads its own input channel alone.

Four bytes of one channel never lie together, so there is nothing for products of bytes; sums of a window are small
enough to be exact in float32 instead, whose multiply-add takes one instruction. Neighboring pixels share their input.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import IRValue, integer, vector_type
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile


class DepthwiseTile(IntegerTile):
    """``pixels`` outputs of one row by the vectors of a panel; weights are float32 ``[tap][channel of the panel]``."""

    begins_with_operand = False

    def _accumulate(self, sums: list[list[IRValue]]) -> None:
        emitter, spec = self.emitter, self.spec
        type_ = vector_type(self.lanes, "float")
        zero = IRValue(type_, "zeroinitializer")
        slots = [[emitter.variable(type_, zero, "real") for _ in self.vectors] for _ in sums]
        x, x_row, weights = (emitter.parameter(n) for n in ("x", "x_row", "w"))
        with emitter.loop(0, integer(spec.kernel[0]), unroll=False, hint="ky") as ky:
            line = emitter.element(x, emitter.mul(emitter.mul(ky, spec.dilations[0]), x_row), "i8")
            row = emitter.element(weights, emitter.mul(ky, spec.kernel[1] * self.panel), "float")
            for number in range(len(self.vectors)):
                self._row_of_window(line, row, number, [pixel[number] for pixel in slots])
        for pixel_slots, pixel_sums in zip(slots, sums, strict=True):
            for slot, total in zip(pixel_slots, pixel_sums, strict=True):
                real = emitter.load(type_, slot)
                emitter.store(emitter.assign(self.type, f"fptosi {real.typed} to {self.type}"), total)

    def _row_of_window(self, line: IRValue, weights: IRValue, number: int, slots: list[IRValue]) -> None:
        """Append one row of the window for one vector of channels, each input loaded once."""
        emitter, spec = self.emitter, self.spec
        type_ = vector_type(self.lanes, "float")
        first = number * self.lanes
        loaded: dict[int, IRValue] = {}
        for tap in range(spec.kernel[1]):
            weight = emitter.load(type_, emitter.element(weights, tap * self.panel + first, "float"), 4)
            for pixel, slot in enumerate(slots):
                place = pixel * spec.strides[1] + tap * spec.dilations[1]
                if place not in loaded:
                    address = emitter.element(line, emitter.add(emitter.mul(self.x_pixel, place), first), "i8")
                    loaded[place] = self._real(number, address)
                emitter.store(emitter.fma(loaded[place], weight, emitter.load(type_, slot)), slot)

    def _real(self, number: int, address: IRValue) -> IRValue:
        """Load bytes of channels that exist as float32."""
        emitter, spec = self.emitter, self.spec
        stored = self.vectors[number].read(emitter, address, spec.input_type)
        wide = vector_type(self.lanes, "i32")
        whole = emitter.assign(wide, f"{'sext' if spec.is_signed else 'zext'} {stored.typed} to {wide}")
        return emitter.assign(vector_type(self.lanes, "float"), f"sitofp {whole.typed} to <{self.lanes} x float>")
