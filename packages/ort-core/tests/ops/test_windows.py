"""Windows in one place: counts and paddings as the specification's words define them, place by place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ort_core
from ort_core.errors import InvalidArgument
from ort_core.ir.dims import SymbolicDim, evaluate
from ort_core.ops.windows import known_sizes, transposed_axes, window_axes

SMALL = st.integers(1, 4)
PADS = st.integers(0, 3)


def begins(size: int, reach: int, stride: int, before: int, after: int, *, ceil_mode: bool) -> list[int]:
    """Return where windows begin, counted in the padded axis: one after the other, as long as they fit."""
    found, place, padded = [], 0, size + before + after
    while place + reach <= padded:
        found.append(place)
        place += stride
    # One more window hangs over the end where there is a rest, if it begins in the axis or in the padding in front.
    if ceil_mode and padded >= reach and found[-1] + reach < padded and place < size + before:
        found.append(place)
    return found


@given(st.integers(1, 20), SMALL, SMALL, SMALL, PADS, PADS, st.booleans())
def test_as_many_windows_as_fit_one_after_the_other(size, kernel, stride, dilation, before, after, ceil_mode):
    (axis,) = window_axes([size], [kernel], [stride], [dilation], [before, after], ceil_mode=ceil_mode)
    reach = (kernel - 1) * dilation + 1
    if size + before + after < reach:
        missing = reach - size - before - after
        assert axis.count in (0, 1) if ceil_mode else axis.count == (missing < stride), "one, if less than a stride is"
        return
    places = begins(size, reach, stride, before, after, ceil_mode=ceil_mode)
    beyond = max(places[-1] + reach - size - before - after, 0)
    if places[-1] >= size + before:  # the last one reads only padding
        has_rest = places[-1] + reach < size + before + after  # then rounding up found one more, and left that one out
        assert axis.count == len(places) - (ceil_mode and not has_rest)
        return
    assert (axis.count, axis.reach, axis.beyond) == (len(places), reach, beyond)


@given(st.integers(1, 20), SMALL, SMALL, SMALL, st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
def test_same_padding_gives_a_window_for_each_stride_and_differs_by_one_at_most(size, kernel, stride, dilation, mode):
    (axis,) = window_axes([size], [kernel], [stride], [dilation], [9, 9], mode)
    assert axis.count == len(range(0, size, stride))
    before, after = known_sizes((axis.before, axis.after))
    assert (after - before if mode == "SAME_UPPER" else before - after) in (0, 1)
    last = (axis.count - 1) * stride + axis.reach
    assert before + after == max(last - size, 0), "as little as lets the last window end in it"


@given(
    st.integers(1, 12),
    SMALL,
    SMALL,
    SMALL,
    PADS,
    PADS,
    st.booleans(),
    st.sampled_from(["NOTSET", "VALID", "SAME_UPPER"]),
)
def test_a_size_with_a_name_gives_what_its_number_gives(size, kernel, stride, dilation, before, after, ceil_mode, mode):
    attributes = ([stride], [dilation], [before, after], mode)
    (open_axis,) = window_axes([SymbolicDim.named("n")], [kernel], *attributes, ceil_mode=ceil_mode)
    (axis,) = window_axes([size], [kernel], *attributes, ceil_mode=ceil_mode)
    if open_axis.count is not None and axis.count and (mode == "SAME_UPPER" or axis.beyond == 0 or ceil_mode):
        assert evaluate(open_axis.count, {"n": size}) == axis.count
        assert evaluate(open_axis.before, {"n": size}) == axis.before


@given(st.integers(1, 9), SMALL, SMALL, SMALL, st.integers(0, 2), st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
def test_same_makes_a_stride_of_each_input_unless_windows_fall_short_of_it(size, kernel, stride, dilation, extra, mode):
    (axis,) = transposed_axes([size], [kernel], [stride], [dilation], auto_pad=mode, output_padding=[extra])
    reached = stride * (size - 1) + (kernel - 1) * dilation + 1 + extra
    assert axis.result == min(size * stride, reached)
    assert axis.before + axis.after == reached - axis.result


@given(st.integers(1, 9), SMALL, SMALL, SMALL, PADS, PADS, st.integers(0, 2))
def test_a_transposed_convolution_makes_what_a_convolution_of_its_result_reads(
    size, kernel, stride, dilation, before, after, extra
):
    extra = min(extra, stride - 1)
    (axis,) = transposed_axes([size], [kernel], [stride], [dilation], [before, after], output_padding=[extra])
    assert axis.missing == 0
    if axis.result > 0:
        (back,) = window_axes([axis.result], [kernel], [stride], [dilation], [before, after])
        assert back.count == size


@pytest.mark.parametrize(("mode", "cut"), [("NOTSET", (2, 1)), ("SAME_LOWER", (2, 1)), ("SAME_UPPER", (1, 2))])
def test_what_is_too_much_for_a_stated_size_is_shared_and_what_lacks_lies_behind(mode, cut):
    (axis,) = transposed_axes([5], [4], [2], auto_pad=mode, output_shape=[9], pads=[7, 7])
    assert (axis.whole, axis.before, axis.after, axis.missing) == (12, *cut, 0)
    (axis,) = transposed_axes([5], [4], [3], auto_pad=mode, output_shape=[18])
    assert (axis.whole, axis.before, axis.after, axis.missing) == (16, 0, 0, 2)


def test_sizes_that_nobody_knows_leave_counts_open_and_ask_for_no_numbers():
    (axis,) = window_axes([None], [3], auto_pad="SAME_UPPER")
    assert (axis.before, axis.after, axis.count, axis.beyond) == (None, None, None, None)
    with pytest.raises(InvalidArgument, match="not all of them are known"):
        known_sizes((axis.count,))


def test_no_other_file_works_out_what_automatic_padding_is():
    """Who needs paddings or counts asks ``ops.windows``."""
    package = Path(ort_core.__file__).parent
    packages = [package, *package.parents[2].glob("ort-ep-*/src")]  # those of vendors where they lie beside it
    sources = [path for each in packages for path in each.rglob("*.py")]
    found = [path for path in sources if re.search('"SAME_(UPPER|LOWER)"', path.read_text(encoding="utf-8"))]
    assert found == [package / "ops" / "windows.py"]
