"""TopK of any k: what may be among the best is gathered, and sorted by the bytes of its keys.

A key is an integer of as many bits as the element, in whose order the better element is the smaller one: floats are
ordered as their bits, NaN above all, and both zeros are one. Sorting byte by byte from the lowest on keeps equal
elements in their order, and takes the same time whatever the order was. The first elements of a row fill the memory of
``held``; when it is full it is sorted, and only what is better than the k-th is taken from there on.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, natural_alignment, share
from ort_core.plugin.ir import DataType, KnownDim, minimum

RECORD_WORDS = 2  # of 8 bytes: key and index
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_RECORD = f"<{RECORD_WORDS} x i64>"
_FRACTION_BITS = {16: 10, 32: 23, 64: 52}
_SPARE = 256  # elements held beyond twice k: sorting fewer takes as long
_UNSIGNED = frozenset({DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64})


def held_records(length: KnownDim, k: KnownDim) -> KnownDim:
    """Return how many elements of a row are held at most."""
    return minimum(length, k * 2 + _SPARE)


def scratch_words(length: KnownDim, k: KnownDim) -> KnownDim:
    """Return how many words of 8 bytes each thread needs."""
    return held_records(length, k) * (2 * RECORD_WORDS)


def sorted_top_k_kernel(name: str, dtype: DataType, target: Target, *, largest: bool) -> list[Emitter]:
    """Return the kernel that stores the ``k`` best elements of each row and their indices, best first.

    Equal elements keep their order; a NaN counts as the largest. The argument table: values, indices (int64), input,
    rows, length, k (at least 1, at most length), elements held, scratch, and its words of 8 bytes for each thread. All
    are row-major.
    """
    sort = _sort(f"{name}.sort", dtype.bits)
    return [sort, _Rows(name, dtype, target, largest, sort.name).emit()]


class _Rows:
    """Prints the kernel."""

    def __init__(self, name: str, dtype: DataType, target: Target, largest: bool, sort: str) -> None:
        self.emitter = Emitter(name, KERNEL_PARAMETERS)
        self._dtype, self._largest, self._sort = dtype, largest, sort
        self._bits, self._align = f"i{dtype.bits}", natural_alignment(dtype)
        self._lanes = target.vector_nbytes * 8 // dtype.bits
        args = self.emitter.parameter("args")
        self._values, self._indices, self._source = (self.emitter.argument(args, i, "ptr") for i in range(3))
        self._rows, self._length, self._k, self._held = (self.emitter.argument(args, i) for i in range(3, 7))
        words = self.emitter.mul(self.emitter.parameter("thread"), self.emitter.argument(args, 8))
        self._records = self.emitter.element(self.emitter.argument(args, 7, "ptr"), words, "i64")
        self._other = self.emitter.element(self._records, self._held, _RECORD)

    def emit(self) -> Emitter:
        """Return the function."""
        e = self.emitter
        self._count, self._limit = e.variable("i64", integer(0), "count"), e.variable("i64", integer(0), "limit")
        first, last = share(e, self._rows)
        with e.loop(first, last, unroll=False, hint="row") as row:
            source = e.element(self._source, e.mul(row, self._length), self._bits)
            with e.loop(0, self._held, unroll=False, hint="i") as i:
                self._hold(i, self._key(self._load(source, i)), i)
            e.store(self._held, self._count)
            self._keep_best()
            is_long = e.compare("sgt", self._length, self._held)
            with e.when(is_long):
                self._go_on(source)
            self._store_best(source, e.mul(row, self._k))
        return e

    def _go_on(self, source: IRValue) -> None:
        """Append the walk over the elements behind those that were held first."""
        e = self.emitter
        left = e.sub(self._length, self._held)
        whole = e.sub(self._length, e.urem(left, self._lanes))
        with e.loop(self._held, whole, self._lanes, unroll=False, hint="i") as i:
            type_ = vector_type(self._lanes, self._bits)
            keys = self._key(e.load(type_, e.element(source, i, self._bits), self._align))
            limit = e.splat(self._narrow_limit(), self._lanes)
            flags = vector_type(self._lanes, "i1")
            better = e.assign(flags, f"icmp ult {keys.typed}, {limit.text}")
            some = e.call("i1", f"llvm.vector.reduce.or.v{self._lanes}i1", better)
            with e.when(some), e.loop(0, integer(self._lanes), unroll=False, hint="lane") as lane:
                self._take(source, e.add(i, lane))
        with e.loop(whole, self._length, unroll=False, hint="i") as i:
            self._take(source, i)
        with e.when(e.compare("sgt", e.load("i64", self._count), self._k)):
            self._keep_best()

    def _take(self, source: IRValue, i: IRValue) -> None:
        """Append what holds an element that is better than the k-th."""
        e = self.emitter
        key = self._key(self._load(source, i))
        with e.when(e.compare("ult", key, self._narrow_limit())):
            count = e.load("i64", self._count)
            self._hold(count, key, i)
            e.store(e.add(count, 1), self._count)
            with e.when(e.compare("sge", e.add(count, 1), self._held)):
                self._keep_best()

    def _keep_best(self) -> None:
        """Append the sort of all that is held, of which the k best stay."""
        e = self.emitter
        e.call_void(self._sort, self._records, self._other, e.load("i64", self._count))
        e.store(self._k, self._count)
        worst = e.element(self._records, e.sub(self._k, 1), _RECORD)
        e.store(e.load("i64", worst, 8), self._limit)

    def _store_best(self, source: IRValue, start: IRValue) -> None:
        e = self.emitter
        with e.loop(0, self._k, unroll=False, hint="place") as place:
            record = e.element(self._records, place, _RECORD)
            index = e.load("i64", e.element(record, 1, "i64"), 8)
            at = e.add(start, place)
            e.store(self._load(source, index), e.element(self._values, at, self._bits), self._align)
            e.store(index, e.element(self._indices, at, "i64"), 8)

    def _load(self, source: IRValue, index: IRValue) -> IRValue:
        return self.emitter.load(self._bits, self.emitter.element(source, index, self._bits), self._align)

    def _hold(self, place: IRValue, key: IRValue, index: IRValue) -> None:
        e = self.emitter
        wide = key if key.type == "i64" else e.assign("i64", f"zext {key.typed} to i64")
        record = e.element(self._records, place, _RECORD)
        e.store(wide, record, 8)
        e.store(index, e.element(record, 1, "i64"), 8)

    def _narrow_limit(self) -> IRValue:
        limit = self.emitter.load("i64", self._limit)
        return limit if self._bits == "i64" else self.emitter.assign(self._bits, f"trunc {limit.typed} to {self._bits}")

    def _key(self, value: IRValue) -> IRValue:
        """Return the keys of an element, or of a vector of them, given their bits."""
        e, bits = self.emitter, self._dtype.bits

        width = 1 if value.type == self._bits else self._lanes

        def number(given: int) -> IRValue:
            return e.splat(integer(given, self._bits), width)

        def flags(comparison: str, left: IRValue, right: IRValue) -> IRValue:
            return e.assign(vector_type(width, "i1"), f"icmp {comparison} {left.typed}, {right.text}")

        sign, ones = number(-(1 << (bits - 1))), number(-1)
        found = value
        if self._dtype.is_float:
            size = e.binary("and", value, number((1 << (bits - 1)) - 1))
            infinity = ((1 << (bits - 1 - _FRACTION_BITS[bits])) - 1) << _FRACTION_BITS[bits]
            plain = e.select(flags("eq", size, number(0)), number(0), value)
            is_negative = flags("slt", plain, number(0))
            found = e.select(is_negative, e.binary("xor", plain, ones), e.binary("xor", plain, sign))
            found = e.select(flags("ugt", size, number(infinity)), ones, found)
        elif self._dtype not in _UNSIGNED:
            found = e.binary("xor", value, sign)
        return e.binary("xor", found, ones) if self._largest else found


def _sort(name: str, bits: int) -> Emitter:
    """Return the function that sorts ``count`` records by keys of so many bits; ``other`` is as much memory again."""
    emitter = Emitter(name, [("ptr", "records"), ("ptr", "other"), ("i64", "count")], linkage="internal")
    count, counts = emitter.parameter("count"), emitter.variable(f"[{_DIGITS} x i64]", align=64)
    source = emitter.variable("ptr", emitter.parameter("records"), "from")
    target = emitter.variable("ptr", emitter.parameter("other"), "to")
    with emitter.loop(0, integer(bits), _DIGIT_BITS, unroll=False, hint="shift") as shift:
        here, there = emitter.load("ptr", source), emitter.load("ptr", target)
        _count_digits(emitter, here, count, shift, counts)
        first = _digit(emitter, here, integer(0), shift)
        alike = emitter.load("i64", emitter.element(counts, first, "i64"))
        with emitter.when(emitter.compare("ne", alike, count)):
            _to_starts(emitter, counts)
            with emitter.loop(0, count, unroll=False, hint="i") as i:
                slot = emitter.element(counts, _digit(emitter, here, i, shift), "i64")
                place = emitter.load("i64", slot)
                emitter.store(emitter.add(place, 1), slot)
                record = emitter.load(_RECORD, emitter.element(here, i, _RECORD), 8)
                emitter.store(record, emitter.element(there, place, _RECORD), 8)
            emitter.store(there, source)
            emitter.store(here, target)
    final = emitter.load("ptr", source)
    is_apart = emitter.assign("i1", f"icmp ne ptr {final.text}, {emitter.parameter('records').text}")
    with emitter.when(is_apart), emitter.loop(0, count, unroll=False, hint="i") as i:
        record = emitter.load(_RECORD, emitter.element(final, i, _RECORD), 8)
        emitter.store(record, emitter.element(emitter.parameter("records"), i, _RECORD), 8)
    return emitter


def _count_digits(emitter: Emitter, records: IRValue, count: IRValue, shift: IRValue, counts: IRValue) -> None:
    with emitter.loop(0, integer(_DIGITS), unroll=False, hint="digit") as digit:
        emitter.store(integer(0), emitter.element(counts, digit, "i64"))
    with emitter.loop(0, count, unroll=False, hint="i") as i:
        slot = emitter.element(counts, _digit(emitter, records, i, shift), "i64")
        emitter.store(emitter.add(emitter.load("i64", slot), 1), slot)


def _to_starts(emitter: Emitter, counts: IRValue) -> None:
    """Append what makes of numbers of records the places where those of each digit begin."""
    total = emitter.variable("i64", integer(0), "total")
    with emitter.loop(0, integer(_DIGITS), unroll=False, hint="digit") as digit:
        slot = emitter.element(counts, digit, "i64")
        number, before = emitter.load("i64", slot), emitter.load("i64", total)
        emitter.store(before, slot)
        emitter.store(emitter.add(before, number), total)


def _digit(emitter: Emitter, records: IRValue, index: IRValue, shift: IRValue) -> IRValue:
    """Return the byte of a record's key that ``shift`` bits lie below."""
    key = emitter.load("i64", emitter.element(records, index, _RECORD), 8)
    return emitter.binary("and", emitter.binary("lshr", key, shift), integer(_DIGITS - 1))
