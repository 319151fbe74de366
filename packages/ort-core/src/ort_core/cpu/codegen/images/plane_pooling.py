"""Pooling, channels-first, vectorized over the pixels of a row: images that lie so need no copy to and fro.

Windows are clipped to the image as those of channels-last images are (``pooling``). Where a vector of windows is not
wholly inside, masks cut off what they read and write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import divide, kernel_emitter, position, share_of
from ort_core.cpu.codegen.images.pooling import LOWEST
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, shuffle, store_vector
from ort_core.cpu.codegen.machine_code.target import Target

MOST_TAPS = 8  # of a row of the window: each is a load of its own
MOST_STRIDE = 2  # along a row: a vector of windows loads as many vectors


@dataclass(frozen=True, slots=True)
class PlanePoolingArguments:
    """Positions in the argument table: sizes of the result's planes and of the images', all without gaps."""

    x: int = 0
    y: int = 1
    planes: int = 2
    height: int = 3
    width: int = 4
    x_height: int = 5
    x_width: int = 6


ARGUMENTS = PlanePoolingArguments()


@dataclass(frozen=True, slots=True)
class PlanePooling:
    """What is known when the kernel is generated; attributes as of ``Pooling``."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    is_maximum: bool
    counts_border: bool


def plane_pooling_kernel(name: str, spec: PlanePooling, target: Target) -> list[Emitter]:
    """Return the kernel, one function."""
    return [_PlanePrinter(spec, target, name).function()]


class _PlanePrinter:
    def __init__(self, spec: PlanePooling, target: Target, name: str) -> None:
        self._spec, self._lanes = spec, target.lanes
        self._emitter = kernel_emitter(name)

    def function(self) -> Emitter:
        emitter, spec, lanes = self._emitter, self._spec, self._lanes
        args, at = emitter.parameter("args"), ARGUMENTS
        planes, height, self._width = (emitter.argument(args, i) for i in (at.planes, at.height, at.width))
        self._x_height, self._x_width = (emitter.argument(args, i) for i in (at.x_height, at.x_width))
        x, y = (emitter.argument(args, i, "ptr") for i in (at.x, at.y))
        top, left, bottom, _ = spec.pads
        with share_of(emitter, emitter.mul(planes, height)) as unit:
            plane, row = divide(emitter, unit, height)
            origin = emitter.sub(emitter.mul(row, spec.strides[0]), top)
            self._first = self._taps_below(integer(0), origin)
            self._stop = self._taps_below(self._x_height, origin)
            counted = emitter.sub(self._stop, self._first)
            if spec.counts_border:
                counted = self._taps_below(emitter.add(self._x_height, bottom), origin)
            self._rows = emitter.assign("float", f"sitofp {counted.typed} to float")
            line = emitter.add(emitter.mul(plane, self._x_height), origin)
            self._line = position(emitter, x, [(line, self._x_width)])
            out = position(emitter, y, [(unit, self._width)])
            with emitter.loop(0, self._width, lanes, unroll=False, hint="pixel") as pixel:
                column = emitter.sub(emitter.mul(pixel, spec.strides[1]), left)
                with emitter.either(self._is_inner(pixel, column)) as branch:
                    store_vector(emitter, self._pooled(column, is_inner=True), emitter.element(out, pixel))
                    with branch.otherwise():
                        mask = lane_mask(emitter, emitter.sub(self._width, pixel), lanes)
                        store_vector(emitter, self._pooled(column, is_inner=False), emitter.element(out, pixel), mask)
        return emitter

    def _taps_below(self, limit: IRValue, origin: IRValue) -> IRValue:
        """Return how many rows of a window lie in front of one of the image's."""
        emitter = self._emitter
        return emitter.minimum(emitter.maximum(emitter.sub(limit, origin), 0), self._spec.kernel[0])

    def _is_inner(self, pixel: IRValue, column: IRValue) -> IRValue:
        """Return whether a vector of windows, and all that is loaded for it, lies in the image and the result."""
        emitter, spec, lanes = self._emitter, self._spec, self._lanes
        reach = lanes * spec.strides[1] + spec.kernel[1] - 1
        inside = emitter.compare("sle", emitter.add(column, reach), self._x_width)
        for other in (
            emitter.compare("sge", column, 0),
            emitter.compare("sle", emitter.add(pixel, lanes), self._width),
        ):
            inside = emitter.binary("and", inside, other)
        return inside

    def _pooled(self, column: IRValue, *, is_inner: bool) -> IRValue:
        """Return the results of a vector of windows, the first of which begins at a column."""
        emitter, spec = self._emitter, self._spec
        start = emitter.splat(float32(LOWEST if spec.is_maximum else 0.0), self._lanes)
        masks = [None if is_inner else self._mask(column, kx) for kx in range(spec.kernel[1])]
        kept = [None if mask is None else self._windows_of(mask) for mask in masks]
        total = emitter.variable(start.type, start, "total")
        bits = vector_type(self._lanes, "i1")
        nans = emitter.variable(bits, IRValue(bits, "zeroinitializer"), "nans")  # windows that have a NaN
        with emitter.loop(self._first, self._stop, unroll=False, hint="ky") as ky:
            line = position(emitter, self._line, [(ky, self._x_width), (column, 1)])
            taps = []
            for kx, (mask, keep) in enumerate(zip(masks, kept, strict=True)):
                loaded = load_vector(emitter, emitter.element(line, kx), self._lanes * spec.strides[1], mask)
                value = self._windows_of(loaded)
                taps.append(emitter.select(keep, value, start) if keep is not None and spec.is_maximum else value)
            if spec.is_maximum:
                emitter.store(self._with_nans(emitter.load(bits, nans), taps), nans)
            while len(taps) > 1:  # in pairs: a chain of all of them would wait for each
                pairs = zip(taps[::2], taps[1::2], strict=False)
                taps = [self._combined(*pair) for pair in pairs] + taps[len(taps) & ~1 :]
            emitter.store(self._combined(emitter.load(start.type, total), taps[0]), total)
        result = emitter.load(start.type, total)
        if not spec.is_maximum:
            return emitter.binary("fdiv", result, self._counts(column, kept))
        return emitter.select(emitter.load(bits, nans), emitter.splat(float32(math.nan), self._lanes), result)

    def _with_nans(self, known: IRValue, taps: Sequence[IRValue]) -> IRValue:
        """Return a mask of windows with those added that have a NaN among some taps; one comparison tests two."""
        emitter = self._emitter
        for first, second in zip(taps[::2], [*taps[1::2], *taps[len(taps) & ~1 :]], strict=True):
            found = emitter.assign(known.type, f"fcmp uno {first.typed}, {second.text}")
            known = emitter.binary("or", known, found)
        return known

    def _windows_of(self, pixels: IRValue) -> IRValue:
        """Return of each window's pixels the one where it begins."""
        step = self._spec.strides[1]
        if step == 1:
            return pixels
        return shuffle(self._emitter, pixels, pixels, range(0, self._lanes * step, step))

    def _mask(self, column: IRValue, kx: int, *, behind: int = 0, is_clipped: bool = True) -> IRValue:
        """Return which pixels at a tap lie in the image, or in front of a border of ``behind`` pixels."""
        emitter = self._emitter
        width = self._lanes * self._spec.strides[1]
        type_ = vector_type(width, "i64")
        lanes = IRValue(type_, "<" + ", ".join(f"i64 {lane + kx}" for lane in range(width)) + ">")
        places = emitter.binary("add", emitter.splat(column, width), lanes)
        limit = emitter.splat(emitter.add(self._x_width, behind), width)
        predicate = "ult" if is_clipped else "slt"  # unsigned: negative ones are huge
        return emitter.assign(vector_type(width, "i1"), f"icmp {predicate} {places.typed}, {limit.text}", "m")

    def _counts(self, column: IRValue, kept: Sequence[IRValue | None]) -> IRValue:
        """Return by how much the sum of each window is divided."""
        emitter, spec, lanes = self._emitter, self._spec, self._lanes
        counts = emitter.splat(float32(spec.kernel[1]), lanes)
        if None not in kept:
            if spec.counts_border:
                behind = spec.pads[3]
                taps = range(spec.kernel[1])
                kept = [self._windows_of(self._mask(column, kx, behind=behind, is_clipped=False)) for kx in taps]
            one, counts = emitter.splat(float32(1.0), lanes), emitter.splat(float32(0.0), lanes)
            zero = counts
            for keep in kept:
                assert keep is not None
                counts = emitter.binary("fadd", counts, emitter.select(keep, one, zero))
        return emitter.binary("fmul", counts, emitter.splat(self._rows, lanes))

    def _combined(self, left: IRValue, right: IRValue) -> IRValue:
        if not self._spec.is_maximum:
            return self._emitter.binary("fadd", left, right)
        emitter = self._emitter  # one instruction of x86, which loses a NaN on the left: those are found otherwise
        is_larger = emitter.assign(vector_type(self._lanes, "i1"), f"fcmp ogt {left.typed}, {right.text}")
        return emitter.select(is_larger, left, right)
