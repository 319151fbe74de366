"""EagerPartition: a partition that makes its results itself, and how results come to where the caller wants them.

A place of ``outputs`` holds a buffer to fill, or ``None`` to be replaced by an array. Three steps cover what partitions
do with that, and every provider takes them from here:

- ``hand_out`` where the results are arrays of the partition's own: an empty place gets the array itself.
- ``filled`` where a result lies in memory of the SDK, which the next run writes to: it is copied in either case.
- ``output_buffer`` where the SDK writes the result: the buffer that was given, or a new one, is what it is bound to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.providers.compiled import CompiledPartition, OutputPlan, PartitionPlan

if TYPE_CHECKING:
    from ort_core.providers.compiled import PlainFunction, RunState
    from ort_core.tensors.runtime_value import RuntimeValue


class EagerPartition(CompiledPartition):
    """A partition whose outputs have the sizes that they turn out to have: one plan serves every run.

    A subclass gives ``compute``, and calls the constructor with the number of the partition's outputs. Sizes that are
    known before the run want a ``plan`` of the subclass's own, from which the runtime places outputs and reuses memory.
    """

    plans_by_shape = False

    def __init__(self, output_count: int) -> None:
        self._plan = PartitionPlan(tuple(OutputPlan() for _ in range(output_count)))

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the one plan, which says nothing of the outputs."""
        return self._plan

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Compute the results, and hand them out."""
        hand_out(self.compute(inputs, run_state), outputs)

    def plain_function(self) -> PlainFunction | None:
        """Return ``compute``, which needs no plan; without it where the plan of a subclass matters."""
        is_plain = not self.plans_by_shape and not self.value_inputs and type(self).run is EagerPartition.run
        return self.compute if is_plain else None

    @abstractmethod
    def compute(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
        """Return the results in the order of the outputs.

        Args:
            inputs: the partition's, in order; they may not be written to, and a result may not share their memory
                unless it is an input that is handed on.
            run_state: of the run; its ``guard`` is asked between regions.
        """


def hand_out(results: Sequence[RuntimeValue], outputs: list[RuntimeValue]) -> None:
    """Fill the buffers among ``outputs``, and put a result itself where there is none.

    Args:
        results: one per output: arrays, or values of another kind such as sequences.
        outputs: as ``CompiledPartition.run`` takes them. A buffer whose shape is not that of the result is replaced.

    Raises:
        ValueError: there are not as many results as outputs.
        TypeError: a result has not the dtype of its buffer.

    Example:
        >>> buffer = np.zeros(2, np.float32)
        >>> outputs = [buffer, None]
        >>> hand_out([np.array([1, 2], np.float32), np.array([3])], outputs)
        >>> print(buffer, outputs[0] is buffer, outputs[1])
        [1. 2.] True [3]
    """
    if len(results) != len(outputs):
        raise ValueError(f"a partition of {len(outputs)} outputs computed {len(results)} results")
    for index, result in enumerate(results):
        buffer = outputs[index]
        if isinstance(buffer, np.ndarray) and isinstance(result, np.ndarray) and buffer.shape == result.shape:
            np.copyto(buffer, result, casting="no")
        else:
            outputs[index] = result


def filled(found: np.ndarray, buffer: RuntimeValue, run_state: RunState) -> np.ndarray:
    """Return a copy of ``found``: in ``buffer`` where one of its shape was given, else in a new array of the run.

    Raises:
        TypeError: the buffer has another dtype.
        AllocationLimitExceeded: a new array would be larger than the session allows.
    """
    if isinstance(buffer, np.ndarray) and buffer.shape == found.shape:
        target = buffer
    else:
        target = run_state.allocate(found.shape, found.dtype)
    np.copyto(target, found, casting="no")
    return target


def output_buffer(buffer: RuntimeValue, shape: tuple[int, ...], dtype: np.dtype, run_state: RunState) -> np.ndarray:
    """Return ``buffer`` where an SDK can write a result of this shape to its address, else a new array of the run.

    It can where the buffer is an array of the shape in one piece, aligned and not read-only.

    Raises:
        TypeError: the buffer has the shape and another dtype.
        AllocationLimitExceeded: a new array would be larger than the session allows.
    """
    if not isinstance(buffer, np.ndarray) or buffer.shape != shape:
        return run_state.allocate(shape, dtype)
    if buffer.dtype != dtype:
        raise TypeError(f"a result of {np.dtype(dtype)} cannot be written to a buffer of {buffer.dtype}")
    return buffer if buffer.flags.carray else run_state.allocate(shape, dtype)
