"""If, Loop and Scan: kernels that run subgraphs, step by step in Python, and stack what each step yields.

The guard is asked once per step, so that a run can be stopped inside an endless loop. Where no step runs, a
stacked output takes its type from the body's declaration: zero steps of the declared shape, unknown sizes 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import TensorType, ValueType
from ort_core.kernels.kernel import KernelContext, SubgraphRunner, kernel
from ort_core.kernels.reference.arrays.axes import resolve_axis, shape_text, single_integer

Value = Any  # a carried value: a tensor, a sequence or an optional


@kernel("If")
def if_(cond: np.ndarray, *, then_branch: SubgraphRunner, else_branch: SubgraphRunner) -> tuple[Value, ...]:
    """Y = the outputs of ``then_branch`` if ``cond``, else of ``else_branch``; only that one runs."""
    return (then_branch if _truth(cond, "If", "cond") else else_branch)()


def _truth(value: np.ndarray, op_type: str, name: str) -> bool:
    given = np.asarray(value)
    if given.size != 1:
        raise InvalidArgument(f"{op_type}: '{name}' must hold one bool, got shape {shape_text(given.shape)}")
    return bool(given.item())


@kernel("Loop")
def loop(
    trip_count: np.ndarray | None = None,
    cond: np.ndarray | None = None,
    *initial: Value,
    body: SubgraphRunner,
    ctx: KernelContext,
) -> tuple[Value, ...]:
    """Run ``body(i, cond, *carried)`` while i < trip count and cond; Y = the last carried values, then stacks."""
    limit = None if trip_count is None else single_integer(trip_count, "M", "Loop")
    go_on = cond is None or _truth(cond, "Loop", "cond")
    carried: tuple[Value, ...] = initial
    count = len(initial)
    stacks = _Stacks(len(body.output_types) - 1 - count, "Loop", ctx)
    step_shape, cond_shape = (_one_element_shape(kind) for kind in body.input_types[:2])
    goes_on = np.ones(cond_shape, bool)  # what a round that runs is told
    for step in _steps(limit):
        if not go_on:
            break
        ctx.guard.check()
        results = body(np.array(step, np.int64).reshape(step_shape), goes_on, *carried)
        go_on = _truth(results[0], "Loop", "cond")
        carried = tuple(results[1 : 1 + count])
        stacks.push(results[1 + count :])
    types = body.output_types[1 + count :]
    return (*carried, *(_stacked(stack, known, "Loop") for stack, known in zip(stacks.values, types, strict=True)))


def _one_element_shape(known: ValueType | None) -> tuple[int, ...]:
    """Return the shape in which a body takes its step and condition: old exporters declare ``[1]`` and squeeze it."""
    return (1,) if isinstance(known, TensorType) and known.shape is not None and len(known.shape) == 1 else ()


class _Stacks:
    """What the steps have yielded so far, one list per scan output; refuses to grow beyond the guard's limit."""

    def __init__(self, count: int, op_type: str, ctx: KernelContext) -> None:
        self.values: list[list[np.ndarray]] = [[] for _ in range(count)]
        self._nbytes = 0
        self._op_type = op_type
        self._guard = ctx.guard

    def push(self, results: Sequence[np.ndarray]) -> None:
        if not results and not self.values:
            return
        for stack, result in zip(self.values, results, strict=True):
            if not isinstance(result, np.ndarray):
                kind = type(result).__name__
                raise InvalidArgument(f"{self._op_type}: a scan output must be a tensor, the body gave a {kind}")
            stack.append(result)
            self._nbytes += result.nbytes
        self._guard.check_allocation(self._nbytes, f"scan outputs of {self._op_type}")


def _steps(limit: int | None) -> Iterator[int]:
    return iter(itertools.count() if limit is None else range(limit))


def _stacked(results: Sequence[np.ndarray], known: ValueType | None, op_type: str) -> np.ndarray:
    """Return the results of all steps as one tensor with a new first dimension."""
    if not results:
        dtype, shape = _declared(known, op_type)
        if math.prod(max(size, 1) for size in shape) * dtype.itemsize > np.iinfo(np.intp).max:
            raise InvalidArgument(f"{op_type}: no array has steps of the declared shape {shape_text(shape)}, nor none")
        return np.empty((0, *shape), dtype)
    first = results[0].shape
    if any(result.shape != first for result in results):
        shapes = ", ".join(sorted({shape_text(result.shape) for result in results}))
        raise InvalidArgument(f"{op_type}: a scan output must have one shape in every iteration, got {shapes}")
    return np.stack(results)


def _declared(known: ValueType | None, op_type: str) -> tuple[np.dtype, tuple[int, ...]]:
    if not isinstance(known, TensorType):
        raise InvalidArgument(
            f"{op_type}: no iteration ran and the type of a scan output is not known ({known}); declare it in the body"
        )
    return known.dtype.numpy, tuple(dim if isinstance(dim, int) else 0 for dim in known.shape or ())


@kernel("Scan", since=9)
def scan(
    *inputs: np.ndarray,
    body: SubgraphRunner,
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] | None = None,
    scan_input_directions: tuple[int, ...] | None = None,
    scan_output_axes: tuple[int, ...] | None = None,
    scan_output_directions: tuple[int, ...] | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, ...]:
    """Run ``body(*state, *slices)`` along the scan axes; Y = the last state, the stacked outputs."""
    state_count = _state_count(inputs, num_scan_inputs, 1)
    if any(value is None for value in inputs):
        raise InvalidArgument("Scan: an input is left out; each state and each sequence must be there")
    axes = _per_value(scan_input_axes, num_scan_inputs, "scan_input_axes")
    backward = _directions(scan_input_directions, num_scan_inputs, "scan_input_directions")
    sequences = []
    for value, axis, flip in zip(inputs[state_count:], axes, backward, strict=True):
        front = np.moveaxis(value, resolve_axis(axis, value.ndim, "Scan"), 0)
        sequences.append(front[::-1] if flip else front)
    state, stacks = _scan_steps(inputs[:state_count], sequences, _scan_length(sequences), body, ctx)
    known = body.output_types[state_count:]
    out_axes = _per_value(scan_output_axes, len(known), "scan_output_axes")
    out_backward = _directions(scan_output_directions, len(known), "scan_output_directions")
    outputs = []
    for stack, declared, axis, flip in zip(stacks, known, out_axes, out_backward, strict=True):
        result = _stacked(stack, declared, "Scan")
        outputs.append(np.moveaxis(result[::-1] if flip else result, 0, resolve_axis(axis, result.ndim, "Scan")))
    return (*state, *outputs)


def _state_count(inputs: Sequence[np.ndarray], num_scan_inputs: int, lowest_rank: int) -> int:
    """Return how many inputs are state, after checking that there are scan inputs and that they have steps."""
    if not 0 < num_scan_inputs <= len(inputs):
        raise InvalidArgument(f"Scan: num_scan_inputs is {num_scan_inputs}; expected 1 to the {len(inputs)} inputs")
    for value in inputs[len(inputs) - num_scan_inputs :]:
        if value.ndim < lowest_rank:
            raise InvalidArgument(
                f"Scan: a scan input needs at least {lowest_rank} dimensions, got shape {shape_text(value.shape)}"
            )
    return len(inputs) - num_scan_inputs


def _scan_length(sequences: Sequence[np.ndarray]) -> int:
    lengths = {sequence.shape[0] for sequence in sequences}
    if len(lengths) != 1:
        raise InvalidArgument(f"Scan: the scan inputs must have the same sequence length, got {sorted(lengths)}")
    return lengths.pop()


def _scan_steps(
    state: Sequence[np.ndarray],
    sequences: Sequence[np.ndarray],
    length: int,
    body: SubgraphRunner,
    ctx: KernelContext,
) -> tuple[tuple[np.ndarray, ...], list[list[np.ndarray]]]:
    current = tuple(state)
    stacks = _Stacks(len(body.output_types) - len(current), "Scan", ctx)
    for step in range(length):
        ctx.guard.check()
        # The ellipsis keeps a slice of a vector an array (numpy would hand out a scalar).
        results = body(*current, *(sequence[step, ...] for sequence in sequences))
        current = tuple(results[: len(current)])
        stacks.push(results[len(current) :])
    return current, stacks.values


def _per_value(given: Sequence[int] | None, count: int, name: str) -> tuple[int, ...]:
    if not given:
        return (0,) * count
    if len(given) != count:
        raise InvalidArgument(f"Scan: number of entries in '{name}' was {len(given)} but expected {count}")
    return tuple(given)


def _directions(given: Sequence[int] | None, count: int, name: str) -> tuple[bool, ...]:
    values = _per_value(given, count, name)
    if any(value not in (0, 1) for value in values):
        raise InvalidArgument(f"Scan: invalid values in '{name}': {list(values)}; 0 is forward, 1 is reverse")
    return tuple(value == 1 for value in values)


@kernel("Scan", since=8, until=8)
def scan_8(
    sequence_lens: np.ndarray | None = None,
    *inputs: np.ndarray,
    body: SubgraphRunner,
    num_scan_inputs: int,
    directions: tuple[int, ...] | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, ...]:
    """Run a scan per batch entry, over ``sequence_lens[b]`` steps; outputs are filled up with zeros."""
    state_count = _state_count(inputs, num_scan_inputs, 2)
    backward = _directions(directions, num_scan_inputs, "directions")
    batch, longest = inputs[-1].shape[:2]
    lengths = [longest] * batch if sequence_lens is None else sequence_lens.reshape(-1).tolist()
    if len(lengths) != batch or any(not 0 <= length <= longest for length in lengths):
        raise InvalidArgument(f"Scan: sequence_lens must hold {batch} values in [0,{longest}], got {lengths}")
    states, rows = [], []
    for entry, length in enumerate(lengths):
        sequences = [value[entry, :length] for value in inputs[state_count:]]
        sequences = [value[::-1] if flip else value for value, flip in zip(sequences, backward, strict=True)]
        state, stacks = _scan_steps([v[entry, ...] for v in inputs[:state_count]], sequences, length, body, ctx)
        states.append(state)
        known = body.output_types[state_count:]
        rows.append([_stacked(stack, declared, "Scan") for stack, declared in zip(stacks, known, strict=True)])
    finals = [np.stack(values) for values in zip(*states, strict=True)]
    return (*finals, *(_filled_up(values, longest) for values in zip(*rows, strict=True)))


def _filled_up(results: Sequence[np.ndarray], longest: int) -> np.ndarray:
    tail = max((result.shape[1:] for result in results if len(result)), default=results[0].shape[1:])
    out = np.zeros((len(results), longest, *tail), results[0].dtype)
    for row, result in zip(out, results, strict=True):
        row[: len(result)] = result.reshape((len(result), *tail))
    return out
