"""Tables of Resize computed in a run, for sizes that are open: as expressions, the same formulas in the same types.

They are small beside the images, so that what they cost does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rows.reducing import combined, store_operand
from ort_core.cpu.lowering.steps import NotLowered, Operators
from ort_core.cpu.lowering.views import View
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, cast, lift, maximum, minimum, select, unary
from ort_core.plugin.ops import TIE, goes_by_scale

if TYPE_CHECKING:
    from ort_core.cpu.lowering.rules.images.resampling import Resampling

F32, F64, I64 = DataType.FLOAT, DataType.DOUBLE, DataType.INT64
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@frozen
class ResizeForm:
    """What the attributes say: the mode, where outputs stand, how they are rounded, Keys' coefficient."""

    mode: str
    centers: str
    rounding: str
    cubic: float
    excludes_outside: bool
    opset: int


def computed_tables(lowering: Lowering, axis: Resampling, form: ResizeForm, operators: Operators) -> tuple[View, View]:
    """Write the steps that compute an axis' tables; returns the inputs of each output (int64) and their weights.

    Raises:
        NotLowered: the form is not generated.
    """
    if form.excludes_outside:
        raise NotLowered("Resize of open sizes that excludes what lies outside is not generated")
    taps = TAPS[form.mode]
    shape = (axis.made, taps)
    outputs = lowering.iota(axis.made).reshaped((axis.made, 1))
    along = lowering.constant_view(np.arange(taps, dtype=np.int64), I64)
    sizes = lowering.stores.stored_sizes((axis.size, axis.made))
    size, made = (View(sizes.buffer, (), (), sizes.offset + number) for number in (0, 1))

    def table(formula: Callable[[Scalar, Scalar, Scalar], Scalar]) -> View:
        """Store a formula of a place (computed in float32), the number of the tap, and the size, all in float64."""

        def expression(i: Scalar, k: Scalar, s: Scalar, m: Scalar) -> Scalar:
            place = _place(cast(i, F32), cast(s, F32), cast(m, F32), axis, form)
            return formula(cast(place, F64), cast(k, F64), cast(s, F64))

        return store_operand(lowering, combined(shape, expression, outputs, along, size, made), operators)

    return table(lambda x, k, s: _input(x, k, s, axis, form)), table(lambda x, k, s: _weight(x, k, s, form))


def _place(output: Scalar, size: Scalar, made: Scalar, axis: Resampling, form: ResizeForm) -> Scalar:
    """Return where in the input an output stands, in float32; see ``source_coordinates``."""
    scale = made / size if axis.scale is None else lift(float(np.float32(axis.scale)), F32)
    half = (output + 0.5) / scale - 0.5
    if form.centers == "asymmetric":
        return output / scale
    if form.centers == "half_pixel":
        return half
    if form.centers == "pytorch_half_pixel":
        return select(binary("gt", made, 1.0), half, 0.0)
    if form.centers == "half_pixel_symmetric":
        offset = size / 2.0 * (lift(1.0, F32) - made / (scale * size))
        return cast(cast(offset, F64) + (cast(output, F64) + 0.5) / cast(scale, F64) - 0.5, F32)
    if form.centers == "align_corners":
        by_scale = axis.scale is not None and goes_by_scale(form.mode, axis.scale, form.opset)
        length = scale * size if by_scale else made
        return select(binary("eq", length, 1.0), lift(0.0, F32), output * (size - 1.0) / (length - 1.0))
    raise NotLowered(f"Resize with {form.centers} coordinates is not generated")


def _input(x: Scalar, tap: Scalar, size: Scalar, axis: Resampling, form: ResizeForm) -> Scalar:
    """Return the input of a tap."""
    if form.mode == "nearest":
        found = _rounded(x, axis, form.rounding)
    elif form.mode == "linear":
        found = unary("floor", minimum(maximum(x, 0.0), size - 1.0)) + tap
    else:
        found = unary("floor", x) + tap - 1.0
    return cast(minimum(maximum(found, 0.0), size - 1.0), I64)


def _rounded(x: Scalar, axis: Resampling, rounding: str) -> Scalar:
    if rounding == "simple":
        if axis.scale is None:
            raise NotLowered("Resize by sizes before opset 11 is not generated")
        rounding = "ceil" if axis.scale < 1 else "floor"
    if rounding == "floor":
        return unary("floor", x)
    if rounding == "round_prefer_ceil":
        return unary("floor", x + (0.5 + TIE))
    return unary("ceil", x - (0.5 + TIE) if rounding == "round_prefer_floor" else x)


def _weight(x: Scalar, tap: Scalar, size: Scalar, form: ResizeForm) -> Scalar:
    """Return the weight of a tap."""
    if form.mode == "nearest":
        return lift(1.0, F32)
    if form.mode == "linear":
        inside = minimum(maximum(x, 0.0), size - 1.0)
        share = inside - unary("floor", inside)
        return cast(select(binary("eq", tap, 0.0), lift(1.0, F64) - share, share), F32)
    a = form.cubic
    d = unary("abs", unary("floor", x) + tap - 1.0 - x)
    near = (d * (a + 2) - (a + 3)) * d * d + 1.0
    far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    zero = lift(0.0, F64)
    return cast(select(binary("le", d, 1.0), near, select(binary("lt", d, 2.0), far, zero)), F32)
