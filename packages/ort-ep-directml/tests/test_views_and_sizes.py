"""What lowering stands on: sizes that are learned from shapes, and views of buffers."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.plugin.ir import SymbolicDim
from ort_ep_directml.lowering.operand import broadcast, expanded, packed, reshaped, transposed
from ort_ep_directml.lowering.plan import Source, Tensor
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.sizes import SizeState, sample_sizes
from ort_ep_directml.schema.element_types import ElementType

N, PAST = SymbolicDim.named("n"), SymbolicDim.named("past")


def seen(operand, array: np.ndarray) -> np.ndarray:
    """What an operand says of a buffer, by numpy."""
    strides = [step * array.itemsize for step in operand.strides]
    return np.lib.stride_tricks.as_strided(array, operand.sizes, strides)


@pytest.fixture
def array() -> np.ndarray:
    return np.arange(24, dtype=np.float32)


@pytest.fixture
def operand():
    return packed(Source("input", 0), ElementType.FLOAT32, (2, 3, 4))


def test_a_size_is_learned_from_a_sum_whose_rest_is_known():
    state = SizeState()
    state.learn((N, N + PAST), (5, 12))
    assert state.shape((PAST, N * 2, 3)) == (7, 10, 3)


def test_a_size_is_learned_whatever_the_order_of_shapes():
    state = SizeState()
    state.learn((N + PAST, N), (12, 5))
    assert state.evaluate(PAST) == 7


def test_a_whole_expression_is_known_although_its_names_are_not():
    state = SizeState()
    state.learn((N // 2,), (4,))
    assert state.evaluate(N // 2) == 4
    assert state.evaluate(N) is None


def test_a_shape_with_a_size_that_nothing_tells_is_not_known():
    assert SizeState().shape((N, 3)) is None
    assert SizeState().shape(None) is None


def test_samples_stand_for_names_and_none_for_what_has_no_name():
    assert sample_sizes((N, N + PAST, 3), 10) == (10, 20, 3)
    assert sample_sizes((None, 3), 10) is None


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_a_transposed_view_is_numpys(operand, array, order):
    np.testing.assert_array_equal(seen(transposed(operand, order), array), array.reshape(2, 3, 4).transpose(order))


def test_an_expanded_view_is_numpys(array):
    column = packed(Source("input", 0), ElementType.FLOAT32, (3, 1))
    found = seen(expanded(column, (2, 3, 4)), array)
    np.testing.assert_array_equal(found, np.broadcast_to(array[:3].reshape(3, 1), (2, 3, 4)))


def test_a_view_is_reshaped_where_only_sizes_of_one_come_or_go(operand, array):
    found = reshaped(transposed(operand, (2, 0, 1)), (4, 1, 2, 3))
    assert found is not None
    np.testing.assert_array_equal(seen(found, array), array.reshape(2, 3, 4).transpose(2, 0, 1)[:, None])


def test_a_view_whose_elements_must_move_is_not_reshaped(operand):
    assert reshaped(transposed(operand, (2, 0, 1)), (4, 6)) is None


def test_more_axes_than_numpy_broadcasts_are_broadcast():
    assert broadcast((1,) * 38 + (2, 1), (4, 1, 3)) == (1,) * 37 + (4, 2, 3)


def test_sizes_that_do_not_broadcast_are_refused():
    with pytest.raises(Refused, match="do not broadcast"):
        broadcast((2, 3), (4,))


@pytest.mark.parametrize(
    ("tensor", "nbytes"),
    [
        (Tensor(ElementType.UINT8, (3,)), 4),
        (Tensor(ElementType.FLOAT32, (2, 3), (1, 2)), 24),
        (Tensor(ElementType.FLOAT32, (5, 3), (0, 1)), 12),
        (Tensor(ElementType.INT64, (1,)), 8),
    ],
)
def test_the_bytes_of_a_tensor_reach_to_its_last_element(tensor, nbytes):
    assert tensor.nbytes == nbytes
