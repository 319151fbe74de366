"""A tile of an integer convolution: sums in registers, through the epilogue's expression, to memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ort_core.cpu.codegen.convolutions.convolution import prefetch
from ort_core.cpu.codegen.images.channels_last import divide
from ort_core.cpu.codegen.llvm_ir.byte_lanes import MOST_PACKED, packed_bytes, packs_bytes, unrounded
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.narrow_lanes import NarrowLanes, lanes_of
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.bounded_pairs import ENTRY_WORDS, HEAD_WORDS, BoundedProducts
from ort_core.cpu.codegen.quantized.initial_sums import first_operand
from ort_core.cpu.codegen.quantized.integer_convolution_plan import IntegerConvolution
from ort_core.cpu.codegen.quantized.integer_dot import WORD, ByteProducts
from ort_core.cpu.codegen.quantized.pair_search import STEP_WORDS
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, operations

NEAR_WEIGHTS_NBYTES = 1 << 14  # weights up to this stay in the first-level cache and need no prefetch
NEAR_STEPS_NBYTES = 1 << 19  # weights in steps: up to this the processor fetches from the second-level cache by itself
PREFETCHED_NBYTES = 1 << 12  # how far ahead in a panel: 32 turns of the inner loop of a full tile
UNROLLED_OPERATIONS = 28  # longer expressions run in a loop over the pixels of a tile
_SIGN = IRValue("i32", "-2139062144")  # 0x80808080: turns signed bytes into unsigned ones, larger by 128


class IntegerTile:
    """One tile function: ``rows x pixels`` outputs by the vectors of a panel that hold channels."""

    sum_element = "i32"
    own_parameters: tuple[tuple[str, str], ...] = ()  # of a kind of tile, in front of those of operands
    begins_with_operand = True  # whether sums may begin with an operand; tiles that sum otherwise say no

    def __init__(
        self, name: str, spec: IntegerConvolution, target: Target, rows: int, pixels: int, panel: int, channels: int
    ) -> None:
        self.spec, self.rows, self.pixels, self.panel = spec, rows, pixels, panel
        self.lanes = target.lanes
        self.has_spare_registers = target.vector_registers >= 32
        self.vectors = lanes_of(channels, target.lanes)
        self.type = vector_type(target.lanes, self.sum_element)
        is_whole = channels % target.lanes == 0 and len(self.vectors) <= MOST_PACKED
        self.packs_bytes = is_whole and packs_bytes(spec.expression, target)
        begun = first_operand(spec.expression, spec.operands) if self.begins_with_operand else None
        self.first = begun[0] if begun else None
        self.expression = begun[1] if begun else spec.expression
        parameters = [("ptr noalias readonly", "x"), ("i64", "x_row"), ("i64", "x_pixel")]
        parameters += [("ptr noalias readonly", "w"), ("ptr", "y"), ("i64", "y_row"), ("i64", "y_pixel")]
        parameters += self.own_parameters
        for number, operand in enumerate(spec.operands):
            parameters.append(("ptr", f"o{number}"))
            if operand.kind in ("tensor", "row"):
                parameters += [("i64", f"o{number}_row"), ("i64", f"o{number}_pixel")]
        self.emitter = Emitter(name, parameters, linkage="internal")
        self.x_pixel = self.emitter.parameter("x_pixel") if spec.x_pixel is None else integer(spec.x_pixel)
        self.products = ByteProducts(self.emitter, target)
        self.bounded = BoundedProducts(self.emitter, target)

    def emit(self) -> Emitter:
        """Return the function."""
        emitter = self.emitter
        first = [self._first(number) for number in range(len(self.vectors))]
        sums = [[emitter.variable(self.type, each, "sum") for each in first] for _ in range(self.rows * self.pixels)]
        self._accumulate(sums)
        self._finish(sums)
        return emitter

    def _first(self, number: int) -> IRValue:
        """Return what the sums of a vector of channels begin with."""
        if self.first is None:
            return IRValue(self.type, "zeroinitializer")
        return self._of_channels(self.first, number)

    def _accumulate(self, sums: list[list[IRValue]]) -> None:
        emitter, spec = self.emitter, self.spec
        weights = emitter.parameter("w")
        if spec.is_paired:
            self._accumulate_pairs(sums, weights)
            return
        whole, rest = divmod(spec.run[1], WORD)
        with self._runs() as (number, tap):
            bases = self._pixel_addresses(tap)
            weight = emitter.element(weights, emitter.mul(number, spec.run_words * self.panel), "i32")
            self._in_sequence(sums, bases, weight, whole)
            if rest:
                words = [emitter.element(base, whole * WORD, "i8") for base in bases]
                self._multiply(sums, words, emitter.element(weight, whole * self.panel, "i32"), rest)

    def _accumulate_pairs(self, sums: list[list[IRValue]], lists: IRValue) -> None:
        emitter = self.emitter
        if self.spec.sequences == 1:
            self._list(sums, self._pixel_addresses(emitter.parameter("x")), lists)
            return
        at = emitter.variable("ptr", lists, "list")
        with self._runs() as (_, tap):
            here = emitter.load("ptr", at)
            self._list(sums, self._pixel_addresses(tap), here)
            emitter.store(emitter.element(here, self._entry(here, 2), "i8"), at)

    @contextmanager
    def _runs(self) -> Iterator[tuple[IRValue, IRValue]]:
        """Loop over the runs of the window: the body gets the number of each and where its first pixel's bytes are."""
        emitter, spec, (taps, _) = self.emitter, self.spec, self.spec.run
        x, x_row = emitter.parameter("x"), emitter.parameter("x_row")
        with emitter.loop(0, integer(spec.kernel[0]), unroll=False, hint="ky") as ky:
            line = emitter.element(x, emitter.mul(emitter.mul(ky, spec.dilations[0]), x_row), "i8")
            with emitter.loop(0, integer(taps), unroll=False, hint="kx") as kx:
                tap = emitter.element(line, emitter.mul(emitter.mul(kx, spec.dilations[1]), self.x_pixel), "i8")
                yield emitter.add(emitter.mul(ky, taps), kx), tap

    def _in_sequence(self, sums: list[list[IRValue]], bases: list[IRValue], weight: IRValue, whole: int) -> None:
        """Append the products of a run's whole words."""
        emitter = self.emitter
        most = 16 if self.has_spare_registers else 2  # more, and the compiler spills what it loads early
        step = next((size for size in (4, 2) if whole % size == 0 and size * len(sums) <= most), 1)
        with emitter.loop(0, integer(whole), step, unroll=False, hint="k") as k:
            for part in range(step):
                at = emitter.add(k, part)
                line = emitter.element(weight, emitter.mul(at, self.panel), "i32")
                self._prefetch(line)
                self._multiply(sums, [emitter.element(base, at, "i32") for base in bases], line, WORD)

    def _list(self, sums: list[list[IRValue]], bases: list[IRValue], list_: IRValue) -> None:
        """Append the products of a list of steps (``bounded_pairs``)."""
        emitter, bounded = self.emitter, self.bounded
        weights = self._pointers(emitter.element(list_, self._entry(list_, 1), "i8"), len(sums))
        entries = emitter.element(list_, HEAD_WORDS, "i32")
        with emitter.loop(0, self._entry(list_, 0), unroll=False, hint="step") as step:
            entry = emitter.element(entries, emitter.mul(step, ENTRY_WORDS), "i32")
            place, sources = self._entry(entry, 0), bounded.sources(entry)
            line = emitter.mul(step, STEP_WORDS * self.panel)
            self._prefetch(emitter.element(weights[0], line, "i32"))
            for base, own, slots in zip(bases, weights, sums, strict=True):
                words = bounded.spread(emitter.element(base, place, "i8"), sources, self.spec.is_signed)
                for index, slot in enumerate(slots):
                    for number, word in enumerate(words):
                        at = emitter.add(line, number * self.panel + index * self.lanes)
                        total = bounded.add(emitter.load(self.type, slot), word, emitter.element(own, at, "i32"))
                        emitter.store(total, slot)

    def _pointers(self, pointer: IRValue, count: int) -> list[IRValue]:
        """Return the pointer so often that LLVM takes each for another.

        What is loaded by one of its own takes no register: it is an operand of the product. LLVM loads what two
        products share first, for which registers are missing.
        """
        slot = self.emitter.variable("ptr", pointer, "w")
        return [self.emitter.assign("ptr", f"load volatile ptr, {slot.typed}") for _ in range(count)]

    def _entry(self, words: IRValue, index: int) -> IRValue:
        found = self.emitter.load("i32", self.emitter.element(words, index, "i32"), WORD)
        return self.emitter.assign("i64", f"zext {found.typed} to i64")

    def _prefetch(self, line: IRValue) -> None:
        """Ask for the weights to come where they do not stay in a near cache."""
        spec = self.spec
        near, words = (NEAR_STEPS_NBYTES, STEP_WORDS) if spec.is_paired else (NEAR_WEIGHTS_NBYTES, 1)
        if spec.panel_words * WORD * spec.out_channels > near:
            for part in range(0, self.panel * words, 16):
                prefetch(self.emitter, self.emitter.element(line, PREFETCHED_NBYTES // WORD + part, "i32"), 3)

    def _pixel_addresses(self, tap: IRValue) -> list[IRValue]:
        emitter, spec = self.emitter, self.spec
        step = emitter.mul(self.x_pixel, spec.strides[1])
        found = []
        for row in range(self.rows):
            base = emitter.element(tap, emitter.mul(emitter.parameter("x_row"), row * spec.strides[0]), "i8")
            found += [emitter.element(base, emitter.mul(step, pixel), "i8") for pixel in range(self.pixels)]
        return found

    def _multiply(self, sums: list[list[IRValue]], words: list[IRValue], weight: IRValue, nbytes: int) -> None:
        """Append the products of one word of each pixel with a row of the panel."""
        emitter, products = self.emitter, self.products
        factors = [products.prepared(emitter.element(weight, i * self.lanes, "i32")) for i in range(len(self.vectors))]
        for address, slots in zip(words, sums, strict=True):
            word = self._word(address, nbytes)
            if self.spec.is_signed:  # of the word: LLVM 22 never ends when it selects code for a vector of these
                word = emitter.binary("xor", word, _SIGN)
            number = emitter.splat(word, self.lanes)
            spread = products.spread(number)
            for factor, slot in zip(factors, slots, strict=True):
                emitter.store(products.add(emitter.load(self.type, slot), spread, factor), slot)

    def _word(self, address: IRValue, nbytes: int) -> IRValue:
        """Load four bytes, or the last one to three of a run: what lies behind them may not exist."""
        emitter = self.emitter
        if nbytes == WORD:
            return emitter.load("i32", address, 1)
        total: IRValue | None = None
        for index in range(nbytes):
            byte = emitter.load("i8", emitter.element(address, index, "i8"), 1)
            wide = emitter.assign("i32", f"zext {byte.typed} to i32")
            wide = emitter.assign("i32", f"shl {wide.typed}, {8 * index}") if index else wide
            total = wide if total is None else emitter.assign("i32", f"or {total.typed}, {wide.text}")
        assert total is not None
        return total

    # the epilogue -----------------------------------------------------------------------------------------------------

    def _finish(self, sums: list[list[IRValue]]) -> None:
        emitter, fixed = self.emitter, self._fixed_operands()
        if operations(self.expression) <= UNROLLED_OPERATIONS:
            for index, slots in enumerate(sums):
                row, pixel = divmod(index, self.pixels)
                with self._storing(index):
                    values = [emitter.load(self.type, slot) for slot in slots]
                    self._store_pixel(values, fixed, integer(row), integer(pixel))
            return
        count = len(self.vectors)
        kept = emitter.variable(f"[{len(sums) * count} x {self.type}]")
        for index, slot in enumerate(slot for slots in sums for slot in slots):
            emitter.store(emitter.load(self.type, slot), emitter.element(kept, index, self.type))
        with emitter.loop(0, self._stored(len(sums)), unroll=False, hint="sum") as number:
            at_row, at_pixel = divide(emitter, number, self.pixels)
            first = emitter.mul(number, count)
            values = [
                emitter.load(self.type, emitter.element(kept, emitter.add(first, i), self.type)) for i in range(count)
            ]
            self._store_pixel(values, fixed, at_row, at_pixel)

    def _stored(self, count: int) -> IRValue:
        """Return how many of ``count`` outputs are stored, from the first one on."""
        return integer(count)

    def _storing(self, number: int) -> AbstractContextManager[None]:
        """Emit the body where an output of this number is stored."""
        del number
        return nullcontext()

    def _fixed_operands(self) -> dict[tuple[int, int], IRValue]:
        """Load the operands that are the same for every pixel."""
        emitter, fixed = self.emitter, {}
        for number, operand in enumerate(self.spec.operands):
            for i in range(len(self.vectors)):
                if operand.kind == "channel":
                    fixed[number, i] = self._of_channels(number, i)
                elif operand.kind == "one":
                    fixed[number, i] = self._spread(emitter.parameter(f"o{number}"), NarrowLanes(1, 1), number)
        return fixed

    def _of_channels(self, number: int, vector: int) -> IRValue:
        """Load an operand of each channel for a vector of them."""
        dtype = self.spec.operands[number].dtype
        place = self.emitter.element(self.emitter.parameter(f"o{number}"), vector * self.lanes, STORED[dtype])
        return self.vectors[vector].read(self.emitter, place, dtype)

    def _spread(self, address: IRValue, one: NarrowLanes, number: int) -> IRValue:
        return self.emitter.splat(one.read(self.emitter, address, self.spec.operands[number].dtype), self.lanes)

    def _store_pixel(
        self, values: Sequence[IRValue], fixed: dict[tuple[int, int], IRValue], row: IRValue, pixel: IRValue
    ) -> None:
        emitter, expression = self.emitter, self.expression
        stored = expression.dtype
        if self.packs_bytes:
            floats, is_rounded = unrounded(expression)
            printed = self._printed(floats, values, fixed, row, pixel)
            packed = packed_bytes(emitter, printed, stored, is_rounded)
            emitter.store(packed, self._place("y", stored, row, pixel, 0), 1)
            return
        for i, result in enumerate(self._printed(expression, values, fixed, row, pixel)):
            self.vectors[i].write(emitter, result, self._place("y", stored, row, pixel, i * self.lanes), stored)

    def _printed(
        self,
        expression: Scalar,
        values: Sequence[IRValue],
        fixed: dict[tuple[int, int], IRValue],
        row: IRValue,
        pixel: IRValue,
    ) -> list[IRValue]:
        """Append an expression over the sums of one pixel and return its value for each vector of channels."""
        emitter, spec, results = self.emitter, self.spec, []
        for i, (lanes, value) in enumerate(zip(self.vectors, values, strict=True)):

            def read(index: int, lanes: NarrowLanes = lanes, value: IRValue = value, i: int = i) -> IRValue:
                if index == 0:
                    return value
                number = index - 1
                if (number, i) in fixed:
                    return fixed[number, i]
                operand = spec.operands[number]
                if operand.kind == "row":
                    return self._spread(
                        self._place(f"o{number}", operand.dtype, row, pixel, 0), NarrowLanes(1, 1), number
                    )
                place = self._place(f"o{number}", operand.dtype, row, pixel, i * self.lanes)
                return lanes.read(emitter, place, operand.dtype)

            results.append(ScalarPrinter(emitter, self.lanes, read).print(expression))
        return results

    def _place(self, name: str, dtype: DataType, row: IRValue, pixel: IRValue, channel: int) -> IRValue:
        emitter = self.emitter
        offset = emitter.add(
            emitter.mul(row, emitter.parameter(f"{name}_row")), emitter.mul(pixel, emitter.parameter(f"{name}_pixel"))
        )
        return emitter.element(emitter.parameter(name), emitter.add(offset, channel), STORED[dtype])
