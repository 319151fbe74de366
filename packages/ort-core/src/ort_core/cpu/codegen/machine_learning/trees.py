"""Walks through tree ensembles: eight at a time, each a chain of loads, so that their latencies overlap.

Many rows: the rows of a block go through one tree after the other, eight rows at a time, while the tree is in the
cache. The rows that are left, or all of a small batch, go through eight trees at a time. Scores are summed in float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text, vector_type
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import TYPES, constant
from ort_core.cpu.codegen.machine_code.target import SCALAR_CHAINS
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.plugin.ir import DataType

GROUP = 8
MAX_BLOCK = 128  # rows: with 20 float32 features 10 KiB, beside a tree of 6 KiB in a cache of 32 KiB
BLOCK_NBYTES = 1 << 16  # scores of a block; with hundreds of targets blocks become small
_NEUTRAL = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": float("inf"), "MAX": float("-inf")}


@dataclass(frozen=True, slots=True)
class TreeKernel:
    """What is generated for.

    ``dtype`` is that of features and thresholds (FLOAT or DOUBLE), ``result`` that of the results, ``weight`` that of
    the leaves' weights. ``width`` is how many scores a leaf holds, padded (``padded_targets``); 0: leaves list
    (target, weight) entries. ``row`` is the distance of rows in elements where it is known, else 0.

    The argument table: features, records, trees (pointers), the number of trees, weights, starts, targets, base, out,
    scratch (pointers), scratch bytes per thread, rows, the distance of rows, targets, trees up to a multiple of GROUP,
    error (pointer), columns that there are, columns that are looked at, padded targets, rows of a block.
    """

    dtype: DataType
    result: DataType
    weight: DataType
    aggregate: str
    width: int
    row: int
    has_nan_bits: bool
    has_base: bool


def padded_targets(count: int) -> int:
    """Return how many scores a row takes in memory: whole vectors of 2, 4 or a multiple of 8."""
    return next((size for size in (1, 2, 4) if count <= size), -(-count // 8) * 8)


def block_rows(targets: int) -> int:
    """Return how many rows a thread takes at once."""
    fitting = BLOCK_NBYTES // (8 * padded_targets(targets)) // GROUP * GROUP
    return max(GROUP, min(MAX_BLOCK, fitting))


def scores_nbytes(targets: int) -> int:
    """Return the scratch that a thread needs."""
    return block_rows(targets) * padded_targets(targets) * 8


@memoized
def tree_kernel(spec: TreeKernel) -> tuple[str, str]:
    """Return the kernel's name and its module."""
    emitter = _TreePrinter(spec, "$name").function()
    emitter.rename(f"trees_{hashlib.sha256(emitter.finish().encode()).hexdigest()[:16]}")
    return emitter.name, SCALAR_CHAINS + module_text([emitter])


class _TreePrinter:
    def __init__(self, spec: TreeKernel, name: str) -> None:
        self._spec = spec
        self._type = TYPES[spec.dtype]
        self._weight = TYPES[spec.weight]
        wide = spec.dtype is DataType.DOUBLE
        self._nbytes = 24 if wide else 16
        start = 8 if wide else 4
        self._feature_at, self._child_at, self._leaf_at = start, start + 4, start + 8
        self._emitter = Emitter(name, KERNEL_PARAMETERS)

    def function(self) -> Emitter:
        """Return the kernel."""
        e = self._emitter
        args = e.parameter("args")
        self._x, self._records, self._trees = (e.argument(args, i, "ptr") for i in range(3))
        self._real = e.argument(args, 3)
        self._weights, self._starts, self._targets, self._base, self._out = (
            e.argument(args, i, "ptr") for i in range(4, 9)
        )
        mine = e.mul(e.parameter("thread"), e.argument(args, 10))
        self._scores = e.element(e.argument(args, 9, "ptr"), mine, "i8")
        rows, self._columns = e.argument(args, 11), e.argument(args, 13)
        self._row = integer(self._spec.row) if self._spec.row else e.argument(args, 12)
        self._padded_trees = e.argument(args, 14)
        width = self._spec.width
        self._padded = integer(width) if width else e.argument(args, 18)
        self._block = integer(block_rows(width)) if width else e.argument(args, 19)
        enough = e.compare("sge", e.argument(args, 16), e.argument(args, 17))
        with e.either(enough) as branch:
            self._blocks(rows)
            with branch.otherwise():
                e.store(integer(1), e.argument(args, 15, "ptr"), 8)
        return e

    def _blocks(self, rows: IRValue) -> None:
        """Emit the loop over this thread's blocks; few rows are spread over all threads."""
        e = self._emitter
        each = e.udiv(e.add(rows, e.sub(e.parameter("pieces"), 1)), e.parameter("pieces"))
        size = e.minimum(e.mul(e.udiv(e.add(each, GROUP - 1), GROUP), GROUP), self._block)
        size = e.maximum(size, GROUP)
        blocks = e.udiv(e.add(rows, e.sub(size, 1)), size)
        first, last = share(e, blocks)
        with e.loop(first, last, unroll=False, hint="block") as block:
            start = e.mul(block, size)
            count = e.minimum(size, e.sub(rows, start))
            self._clear(count)
            whole = e.sub(count, e.urem(count, GROUP))
            self._rows_by_tree(start, whole)
            self._trees_by_row(start, whole, count)
            self._finish(start, count)

    def _clear(self, count: IRValue) -> None:
        e = self._emitter
        neutral = constant(_NEUTRAL[self._spec.aggregate], DataType.DOUBLE, 1)
        with e.loop(0, e.mul(count, self._padded)) as i:
            e.store(neutral, e.element(self._scores, i, "double"), 8)

    def _rows_by_tree(self, start: IRValue, whole: IRValue) -> None:
        e = self._emitter
        trees = e.select(e.compare("sgt", whole, 0), self._real, integer(0))
        with e.loop(0, trees, unroll=False, hint="tree") as tree:
            entry = e.element(self._trees, e.mul(tree, 3), "i64")
            root, sure, deepest = (e.load("i64", e.element(entry, i, "i64"), 8) for i in range(3))
            with e.loop(0, whole, GROUP, unroll=False, hint="row") as row:
                at = e.mul(e.add(start, row), self._row)
                features = [e.element(self._x, e.add(at, e.mul(self._row, lane)), self._type) for lane in range(GROUP)]
                leaves = self._walk(features, [root] * GROUP, sure, deepest)
                for lane, leaf in enumerate(leaves):
                    self._score(e.add(row, lane), leaf)

    def _trees_by_row(self, start: IRValue, first: IRValue, last: IRValue) -> None:
        e = self._emitter
        with e.loop(first, last, unroll=False, hint="row") as row:
            features = e.element(self._x, e.mul(e.add(start, row), self._row), self._type)
            with e.loop(0, self._padded_trees, GROUP, unroll=False, hint="tree") as tree:
                entry = e.element(self._trees, e.mul(tree, 3), "i64")
                roots, sure, deepest = [], integer(0), integer(0)
                for lane in range(GROUP):
                    words = [e.load("i64", e.element(entry, 3 * lane + i, "i64"), 8) for i in range(3)]
                    roots.append(words[0])
                    sure, deepest = e.maximum(sure, words[1]), e.maximum(deepest, words[2])
                for leaf in self._walk([features] * GROUP, roots, sure, deepest):
                    self._score(row, leaf)

    def _walk(
        self, features: Sequence[IRValue], roots: Sequence[IRValue], sure: IRValue, deepest: IRValue
    ) -> list[IRValue]:
        """Emit the walks and return their leaves: some levels without looking, then until nobody moves any more."""
        e = self._emitter
        places = [e.variable("i64", root, "at") for root in roots]
        with e.loop(0, sure, unroll=False, hint="level"):
            self._level(features, places)
        moved = e.variable("i1", e.compare("slt", sure, deepest))
        with e.repeat(moved):
            self._level(features, places)
            before = [e.load("i64", place) for place in places]
            self._level(features, places)
            change = integer(0)
            for place, old in zip(places, before, strict=True):
                difference = e.binary("xor", e.load("i64", place), old)
                change = difference if change.text == "0" else e.binary("or", change, difference)
            e.store(e.compare("ne", change, 0), moved)
        found = []
        for place in places:
            record = e.element(self._records, e.load("i64", place), "i8")
            leaf = e.load("i32", e.element(record, self._leaf_at, "i8"), 4)
            found.append(e.assign("i64", f"zext {leaf.typed} to i64"))
        return found

    def _level(self, features: Sequence[IRValue], places: Sequence[IRValue]) -> None:
        e = self._emitter
        for row, place in zip(features, places, strict=True):
            record = e.element(self._records, e.load("i64", place), "i8")
            threshold = e.load(self._type, record, 4)
            feature = e.load("i32", e.element(record, self._feature_at, "i8"), 4)
            child = e.load("i32", e.element(record, self._child_at, "i8"), 4)
            index = feature
            if self._spec.has_nan_bits:
                index = e.binary("and", feature, IRValue("i32", str(2**31 - 1)))
            value = e.load(self._type, e.element(row, self._wide(index), self._type), 4)
            goes = e.assign("i1", f"fcmp ole {value.typed}, {threshold.text}")
            if self._spec.has_nan_bits:
                is_nan = e.assign("i1", f"fcmp uno {value.typed}, {value.text}")
                counts = e.binary("and", is_nan, e.compare("slt", feature, 0))
                goes = e.binary("or", goes, counts)
            step = e.mul(e.assign("i64", f"zext {goes.typed} to i64"), self._nbytes)
            e.store(e.add(self._wide(child), step), place)

    def _wide(self, value: IRValue) -> IRValue:
        return self._emitter.assign("i64", f"zext {value.typed} to i64")

    # leaves -----------------------------------------------------------------------------------------------------------

    def _score(self, row: IRValue, leaf: IRValue) -> None:
        """Emit how a leaf's weights join the scores of a row of the block."""
        e = self._emitter
        scores = e.element(self._scores, e.mul(row, self._padded), "double")
        if self._spec.width:
            lanes = min(self._spec.width, 8)
            weights = e.element(self._weights, e.mul(leaf, self._padded), self._weight)
            for start in range(0, self._spec.width, lanes):
                self._join(e.element(scores, start, "double"), e.element(weights, start, self._weight), lanes)
            return
        first, last = (self._wide(e.load("i32", e.element(self._starts, e.add(leaf, i), "i32"), 4)) for i in range(2))
        with e.loop(first, last, unroll=False, hint="entry") as entry:
            target = self._wide(e.load("i32", e.element(self._targets, entry, "i32"), 4))
            self._join(e.element(scores, target, "double"), e.element(self._weights, entry, self._weight), 1)

    def _join(self, score: IRValue, weight: IRValue, lanes: int) -> None:
        e = self._emitter
        type_ = vector_type(lanes, "double")
        added = e.load(vector_type(lanes, self._weight), weight, 4)
        if self._weight != "double":
            added = e.assign(type_, f"fpext {added.typed} to {type_}")
        e.store(self._combined(e.load(type_, score, 8), added, lanes), score, 8)

    def _combined(self, left: IRValue, right: IRValue, lanes: int) -> IRValue:
        e = self._emitter
        if self._spec.aggregate in ("SUM", "AVERAGE"):
            return e.binary("fadd", left, right)
        predicate = "olt" if self._spec.aggregate == "MIN" else "ogt"
        return e.select(e.assign(vector_type(lanes, "i1"), f"fcmp {predicate} {right.typed}, {left.text}"), right, left)

    def _finish(self, start: IRValue, count: IRValue) -> None:
        """Emit scores to results: the mean, 0 where no leaf scored, the base values, the result's type."""
        e, spec = self._emitter, self._spec
        with e.loop(0, count, unroll=False, hint="row") as row:
            to = e.element(self._out, e.mul(e.add(start, row), self._columns), TYPES[spec.result])
            with e.loop(0, self._columns, unroll=False, hint="target") as target:
                place = e.add(e.mul(row, self._padded), target)
                value = e.load("double", e.element(self._scores, place, "double"), 8)
                if spec.aggregate == "AVERAGE":
                    trees = e.assign("double", f"uitofp {e.maximum(self._real, 1).typed} to double")
                    value = e.binary("fdiv", value, trees)
                if spec.aggregate in ("MIN", "MAX"):
                    neutral = constant(_NEUTRAL[spec.aggregate], DataType.DOUBLE, 1)
                    empty = e.assign("i1", f"fcmp oeq {value.typed}, {neutral.text}")
                    value = e.select(empty, constant(0.0, DataType.DOUBLE, 1), value)
                if spec.has_base:
                    value = e.binary("fadd", value, e.load("double", e.element(self._base, target, "double"), 8))
                if spec.result is DataType.FLOAT:
                    value = e.assign("float", f"fptrunc {value.typed} to float")
                e.store(value, e.element(to, target, TYPES[spec.result]), 4)
