"""Sizes at run time and the algebra of views, by properties: programs evaluate as dimensions do, views as numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ort_core.cpu.lowering.views import Buffer, Place, View, broadcast_strides, collapse, count_of, dense_strides
from ort_core.cpu.program.sizes import SizeProgram, bindings, evaluate, is_evaluable
from ort_core.ir import dims
from ort_core.plugin.ir import DataType, KnownDim, SymbolicDim

N, M = SymbolicDim.named("N"), SymbolicDim.named("M")
ASSIGNMENTS = st.fixed_dictionaries({"N": st.integers(0, 50), "M": st.integers(0, 50), "K": st.integers(1, 9)})
quick = settings(max_examples=150, deadline=None)


def sizes() -> st.SearchStrategy[KnownDim]:
    leaves = st.one_of(st.integers(0, 9), st.sampled_from([N, M, SymbolicDim.named("K")]))
    functions = [
        lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, dims.maximum, dims.minimum, dims.broadcast,
        lambda a, b: dims.floor_div(a, dims.maximum(b, 1)), lambda a, b: dims.modulo(a, dims.maximum(b, 1)),
    ]  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(functions), inner, inner).map(lambda t: t[0](t[1], t[2])),
        max_leaves=8,
    )


@quick
@given(st.lists(sizes(), max_size=6), ASSIGNMENTS)
def test_size_program_evaluates_as_dimensions_do(wanted: list[KnownDim], values: dict[str, int]) -> None:
    expected = [dims.evaluate(size, values) for size in wanted]
    assert SizeProgram(wanted).evaluate(values) == expected
    assert [evaluate(size, values) for size in wanted] == expected


@quick
@given(st.lists(sizes(), min_size=1, max_size=4), sizes(), ASSIGNMENTS)
def test_bound_sizes_are_read_off_inputs(shape: list[KnownDim], other: KnownDim, values: dict[str, int]) -> None:
    found = bindings([(DataType.FLOAT, tuple(shape))])
    actual = [dims.evaluate(size, values) for size in shape]
    solved: dict[str, int] = {}
    for binding in found:
        solved[binding.atom] = binding.solve(actual[binding.axis], solved)
    for size in (*shape, other):
        if is_evaluable(size, solved):
            expected = dims.evaluate(size, values)
            assert evaluate(size, solved) == expected, f"{size} with {solved}"
            assert SizeProgram([size], list(solved)).evaluate(solved) == [expected]


def test_size_that_is_linear_in_one_unknown_is_solved() -> None:
    found = bindings([(DataType.FLOAT, (N - 2, dims.minimum(M, 3), M - N))])
    assert [binding.atom for binding in found] == ["N", "\0min(3, M)", "M"]


Shape = tuple[int, ...]


@st.composite
def numpy_views(draw: st.DrawFn) -> tuple[np.ndarray, View]:
    """Return an array and the View that says the same: transposed and sliced from a dense one."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    array = np.arange(count_of(shape), dtype=np.float32).reshape(shape)
    view = View(Buffer(DataType.FLOAT, array.size, Place.ARENA), shape, dense_strides(shape))
    order = draw(st.permutations(range(len(shape))))
    array, view = array.transpose(order), view.transposed(order)
    axis = draw(st.integers(0, len(shape) - 1))
    step, start = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    start = min(start, array.shape[axis])
    index = [slice(None)] * len(shape)
    index[axis] = slice(start, None, step)
    array = array[tuple(index)]
    strides = list(view.strides)
    offset = start * strides[axis]
    strides[axis] *= step
    return array, View(view.buffer, array.shape, tuple(strides), offset)


def gathered(shape: Shape, strides: list[int], offset: int) -> list[int]:
    return [offset + int(np.dot(index, strides)) for index in np.ndindex(*shape)]


@quick
@given(numpy_views(), st.lists(st.integers(1, 3), max_size=2))
def test_broadcast_and_collapsed_views_name_numpys_elements(both: tuple[np.ndarray, View], more: list[int]) -> None:
    array, view = both
    wider = tuple(3 if size == 1 else size for size in array.shape)
    shape = (*more, *wider)
    strides = broadcast_strides(view, shape)
    assert strides is not None
    expected = np.broadcast_to(array, shape).reshape(-1).tolist()
    assert gathered(shape, list(strides), view.offset) == expected
    sizes_, (merged,) = collapse(shape, [strides])
    assert gathered(tuple(sizes_), list(merged), view.offset) == expected
    assert len(sizes_) <= max(1, len(shape))


@quick
@given(numpy_views())
def test_contiguous_view_is_what_numpy_calls_contiguous(both: tuple[np.ndarray, View]) -> None:
    array, view = both
    if array.size:
        assert view.is_contiguous == array.flags.c_contiguous


@pytest.mark.parametrize("shape", [(M,), (2, M), (N, M, 1)], ids=str)
def test_broadcast_that_only_run_time_decides_has_no_strides(shape: tuple[KnownDim, ...]) -> None:
    view = View(Buffer(DataType.FLOAT, N, Place.ARENA), (N,), (1,))
    assert broadcast_strides(view, shape) is None


def test_view_of_higher_rank_than_the_result_has_no_strides() -> None:
    view = View(Buffer(DataType.FLOAT, 6, Place.ARENA), (2, 3), (3, 1))
    assert broadcast_strides(view, (3,)) is None
