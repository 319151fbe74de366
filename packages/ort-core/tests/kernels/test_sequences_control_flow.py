"""Sequences, optionals, If, Loop and Scan, with bodies written as plain Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ort_core.errors import InvalidArgument, RunTerminated
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.sequences import control_flow, sequences


class Body:
    """A subgraph whose nodes are one Python function."""

    def __init__(self, function: Callable[..., tuple[Any, ...]], *types: ValueType | None) -> None:
        self._function = function
        self.output_types = types
        self.input_count = function.__code__.co_argcount
        self.input_types = (None,) * self.input_count

    def __call__(self, *inputs: object) -> tuple[Any, ...]:
        return self._function(*inputs)


class StopAfter(Unguarded):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise RunTerminated("stopped")


def context(guard: Any = None) -> KernelContext:
    return KernelContext("", "", 21, "", (True,), (None,), {}, guard or Unguarded())


FLOAT = TensorType(DataType.FLOAT, (2, None))
TRUE = np.array(True)


def test_loop_carries_values_and_stacks_what_each_step_yields() -> None:
    body = Body(lambda i, go, total: (TRUE, total + i, total * 2), None, FLOAT, FLOAT)
    total, stacked = control_flow.loop(np.array(4), None, np.array([1, 2]), body=body, ctx=context())
    assert total.tolist() == [7, 8]
    assert stacked.tolist() == [[2, 4], [2, 4], [4, 6], [8, 10]]


def test_loop_ends_when_its_condition_turns_false() -> None:
    body = Body(lambda i, go, x: (np.array([i < 2]), x + 1), None, FLOAT)
    assert control_flow.loop(None, TRUE, np.array(0), body=body, ctx=context())[0] == 3


@pytest.mark.parametrize(("trips", "condition"), [(0, True), (5, False), (-3, True)])
def test_loop_without_a_step_yields_empty_stacks_of_the_declared_type(trips: int, condition: bool) -> None:
    body = Body(lambda i, go, x: (TRUE, x, x), None, FLOAT, FLOAT)
    kept, stacked = control_flow.loop(np.array([trips]), np.array(condition), "carried", body=body, ctx=context())
    assert kept == "carried"
    assert stacked.shape == (0, 2, 0)
    assert stacked.dtype == np.float32


def test_loop_without_a_step_says_that_no_array_has_its_declared_shape() -> None:
    body = Body(lambda i, go, x: (TRUE, x, x), None, FLOAT, TensorType(DataType.FLOAT, (2**40, 2**40)))
    with pytest.raises(InvalidArgument, match="Loop: no array has steps of the declared shape"):
        control_flow.loop(np.array([0]), TRUE, "carried", body=body, ctx=context())


def test_loop_carries_sequences_and_absent_optionals() -> None:
    body = Body(lambda i, go, items, maybe: (TRUE, [*items, i], items or None), None, None, None)
    items, maybe = control_flow.loop(np.array(3), TRUE, [], None, body=body, ctx=context())
    assert [int(x) for x in items] == [0, 1, 2]
    assert len(maybe) == 2


def test_an_endless_loop_asks_the_guard_at_every_step() -> None:
    body = Body(lambda i, go: (TRUE,), None)
    guard = StopAfter(10)
    with pytest.raises(RunTerminated):
        control_flow.loop(None, None, body=body, ctx=context(guard))
    assert guard.left == -1


def test_loop_refuses_scan_outputs_that_change_their_shape() -> None:
    body = Body(lambda i, go: (TRUE, np.zeros(int(i))), None, FLOAT)
    with pytest.raises(InvalidArgument, match="one shape in every iteration"):
        control_flow.loop(np.array(2), None, body=body, ctx=context())


def test_if_runs_the_chosen_branch_only() -> None:
    ran: list[str] = []
    branch = {name: Body(lambda name=name: (ran.append(name), name), None) for name in ("then", "else")}
    for condition, expected in ((True, "then"), (False, "else")):
        found = control_flow.if_(np.array([condition]), then_branch=branch["then"], else_branch=branch["else"])
        assert found[1] == expected
    assert ran == ["then", "else"]


@pytest.mark.parametrize("input_axis", [0, 1])
@pytest.mark.parametrize("input_direction", [0, 1])
@pytest.mark.parametrize("output_axis", [0, -1])
@pytest.mark.parametrize("output_direction", [0, 1])
def test_scan_sums_along_any_axis_in_any_direction(
    input_axis: int, input_direction: int, output_axis: int, output_direction: int
) -> None:
    data = np.arange(12.0).reshape(3, 4)
    body = Body(lambda total, row: (total + row, total + row), FLOAT, FLOAT)
    start = np.zeros(data.shape[1 - input_axis])
    total, sums = control_flow.scan(
        start,
        data,
        body=body,
        num_scan_inputs=1,
        scan_input_axes=(input_axis,),
        scan_input_directions=(input_direction,),
        scan_output_axes=(output_axis,),
        scan_output_directions=(output_direction,),
        ctx=context(),
    )
    rows = np.moveaxis(data, input_axis, 0)[:: -1 if input_direction else 1]
    expected = np.cumsum(rows, axis=0)[:: -1 if output_direction else 1]
    assert (total == rows.sum(axis=0)).all()
    assert (sums == np.moveaxis(expected, 0, output_axis)).all()


def test_scan_over_vectors_hands_out_scalars_as_arrays() -> None:
    body = Body(lambda x: (np.asarray(x).reshape(1),), FLOAT)
    (found,) = control_flow.scan(np.arange(3), body=body, num_scan_inputs=1, ctx=context())
    assert found.tolist() == [[0], [1], [2]]


def test_scan_8_runs_each_batch_entry_over_its_own_length() -> None:
    data = np.arange(12.0).reshape(2, 3, 2)
    body = Body(lambda total, row: (total + row, total + row), FLOAT, FLOAT)
    total, sums = control_flow.scan_8(
        np.array([1, 3]), np.zeros((2, 2)), data, body=body, num_scan_inputs=1, ctx=context()
    )
    assert total.tolist() == [[0, 1], [24, 27]]
    assert sums[0].tolist() == [[0, 1], [0, 0], [0, 0]]
    assert sums[1].tolist() == np.cumsum(data[1], axis=0).tolist()


def test_sequence_map_pairs_sequences_and_repeats_tensors() -> None:
    body = Body(lambda a, b, c: (a + b + c,), None)
    found = sequences.sequence_map(
        [np.array(1), np.array(2)], [np.array(10), np.array(20)], np.array(100), body=body, ctx=context()
    )
    assert [int(x) for x in found[0]] == [111, 122]
    assert sequences.sequence_map([], body=Body(lambda a: (a, a), None, None), ctx=context()) == ([], [])


def test_sequence_positions_count_from_both_ends() -> None:
    items = [np.array(0), np.array(1), np.array(2)]
    assert sequences.sequence_at(items, np.array(-1)) == 2
    assert [int(x) for x in sequences.sequence_insert(items, np.array(9), np.array(-1))] == [0, 1, 9, 2]
    assert [int(x) for x in sequences.sequence_insert(items, np.array(9))] == [0, 1, 2, 9]
    assert [int(x) for x in sequences.sequence_erase(items)] == [0, 1]
    assert len(items) == 3
    for call in (
        lambda: sequences.sequence_at(items, np.array(3)),
        lambda: sequences.sequence_erase([], None),
        lambda: sequences.sequence_insert(items, np.array(9), np.array(4)),
    ):
        with pytest.raises(InvalidArgument, match="Invalid sequence index"):
            call()


def test_split_to_sequence_cuts_into_equal_given_or_single_parts() -> None:
    data = np.arange(10).reshape(2, 5)
    equal = sequences.split_to_sequence(data, np.array(2), axis=1)
    assert [part.shape for part in equal] == [(2, 2), (2, 2), (2, 1)]
    given = sequences.split_to_sequence(data, np.array([1, 4]), axis=-1)
    assert [part.shape for part in given] == [(2, 1), (2, 4)]
    single = sequences.split_to_sequence(data, keepdims=0)
    assert [part.tolist() for part in single] == data.tolist()
    words = sequences.split_to_sequence(np.array(["a", "b"], object), keepdims=0)
    assert all(isinstance(word, np.ndarray) and word.dtype == object for word in words)
    with pytest.raises(InvalidArgument, match="split_size_sum"):
        sequences.split_to_sequence(data, np.array([1, 1]), axis=1)


def test_concat_from_sequence_joins_along_an_old_or_a_new_axis() -> None:
    items = [np.ones((2, 3)), np.zeros((2, 3))]
    assert sequences.concat_from_sequence(items, axis=1).shape == (2, 6)
    assert sequences.concat_from_sequence(items, axis=-1, new_axis=1).shape == (2, 3, 2)


def test_an_absent_optional_says_so() -> None:
    assert not sequences.optional_has_element(None)
    assert sequences.optional_has_element([])
    assert sequences.optional_get_element([]) == []
    with pytest.raises(InvalidArgument, match="contains no data"):
        sequences.optional_get_element(None)
