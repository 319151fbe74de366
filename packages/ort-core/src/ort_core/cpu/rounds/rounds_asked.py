"""RoundsAsked: what the operands of a Loop or Scan ask for, read as far as rounds can be native."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from ort_core.cpu.rounds.bound_rounds import Place
from ort_core.plugin import frozen
from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import RuntimeValue

Axis: TypeAlias = tuple[int, bool]  # of a stacked result: where the rounds go, and whether the last one is first


@frozen
class RoundsAsked:
    """The rounds of one run of a node.

    Attributes:
        limit: how many rounds there are at most; ``None``: until the condition ends them.
        formal: what the first round reads, an array for each formal input of the body.
        sliced: for formal inputs that are slices where each round finds its own.
        first_carried: the number of the first formal input that is carried; carried outputs begin at ``has_condition``.
        carried: how many are carried.
        has_condition: whether the first output of the body says that another round follows.
        axes: of the stacked outputs.
    """

    limit: int | None
    formal: tuple[np.ndarray, ...]
    sliced: Mapping[int, Place]
    first_carried: int
    carried: int
    has_condition: bool
    axes: tuple[Axis, ...]


class Question(Protocol):
    """Reads a node's operands; ``carried`` is how many values are carried."""

    @property
    def carried(self) -> int:
        """How many values are carried."""

    def __call__(self, operands: Sequence[RuntimeValue]) -> RoundsAsked | None:
        """Return the rounds."""


def question_of(node: Node, body: Graph) -> Question | None:
    """Return what reads a node's operands and gives ``None`` for what is left to the kernels.

    ``None`` where the node is no Loop and no Scan since opset 9, whose inputs are those of its body.
    """
    formal, outputs = len(body.inputs), len(body.outputs)
    if not node.domain and node.op_type == "Loop" and 2 <= formal <= outputs + 1:
        return LoopQuestion(body)
    if (
        not node.domain
        and node.op_type == "Scan"
        and formal == len(node.inputs)
        and "directions" not in node.attributes
    ):
        return ScanQuestion(node, body)
    return None


class LoopQuestion:
    """Reads the operands of a Loop: the number of rounds, the condition, then the carried values."""

    def __init__(self, body: Graph) -> None:
        self._number, self._condition = (np.zeros(_one_element(value), np.int64) for value in body.inputs[:2])
        self._formal = len(body.inputs)
        self.carried = self._formal - 2
        self._stacked = len(body.outputs) + 1 - self._formal

    def __call__(self, operands: Sequence[RuntimeValue]) -> RoundsAsked | None:
        """Return the rounds."""
        trips, condition, *initial = (*operands, None, None)[: max(len(operands), 2)]
        if not (_holds_one(trips, np.int64) and _holds_one(condition, np.bool_)) or len(initial) + 2 != self._formal:
            return None
        if condition is not None and not np.asarray(condition).item():
            return None
        carried = [contiguous(value) for value in initial if isinstance(value, np.ndarray)]
        if len(carried) < len(initial):
            return None
        formal = (self._number, np.ones(self._condition.shape, np.bool_), *carried)
        limit = None if trips is None else int(np.asarray(trips).item())
        return RoundsAsked(limit, formal, {}, 2, len(carried), has_condition=True, axes=((0, False),) * self._stacked)


class ScanQuestion:
    """Reads the operands of a Scan since opset 9: states, then sequences along an axis."""

    def __init__(self, node: Node, body: Graph) -> None:
        self._sequences = node.int_attribute("num_scan_inputs", 0)
        self.carried = len(body.inputs) - self._sequences
        stacked = len(body.outputs) - self.carried
        self._axes = _listed(node, "scan_input_axes", self._sequences)
        self._backward = _directions(node, "scan_input_directions", self._sequences)
        axes, backward = (
            _listed(node, "scan_output_axes", stacked),
            _directions(node, "scan_output_directions", stacked),
        )
        self._stacked = None if axes is None or backward is None else tuple(zip(axes, backward, strict=True))

    def __call__(self, operands: Sequence[RuntimeValue]) -> RoundsAsked | None:
        """Return the rounds."""
        arrays = [value for value in operands if isinstance(value, np.ndarray)]
        if self._axes is None or self._backward is None or self._stacked is None or len(arrays) < len(operands):
            return None
        states = [contiguous(array) for array in arrays[: self.carried]]
        formal, sliced, lengths = list(states), {}, set()
        for array, axis, backward in zip(arrays[self.carried :], self._axes, self._backward, strict=True):
            if not -array.ndim <= axis < array.ndim:
                return None
            front = contiguous(np.moveaxis(array, axis, 0))
            lengths.add(len(front))
            if not len(front):
                return None
            stride = front[0].nbytes
            start = Place.at(front[-1:] if backward else front, -stride if backward else stride)
            sliced[len(formal)] = start
            formal.append(front[0, ...])
        if len(lengths) != 1:
            return None
        (length,) = lengths
        return RoundsAsked(length, tuple(formal), sliced, 0, self.carried, has_condition=False, axes=self._stacked)


def _listed(node: Node, name: str, count: int) -> tuple[int, ...] | None:
    """Return an attribute with an integer for each value, 0 where it is left out; ``None`` for another count."""
    given = node.ints_attribute(name) or (0,) * count
    return given if len(given) == count else None


def _directions(node: Node, name: str, count: int) -> tuple[bool, ...] | None:
    """Return for each value whether the last round comes first; ``None`` for what the kernels refuse."""
    given = _listed(node, name, count)
    return None if given is None or any(each not in (0, 1) for each in given) else tuple(each == 1 for each in given)


def _holds_one(value: RuntimeValue, dtype: type[np.generic]) -> bool:
    return value is None or (isinstance(value, np.ndarray) and value.size == 1 and value.dtype == dtype)


def _one_element(value: Value) -> tuple[int, ...]:
    """Return the shape in which a body takes the number of its round: old exporters declare ``[1]`` and squeeze it."""
    return (1,) if value.shape is not None and len(value.shape) == 1 else ()


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return an array whose elements lie in order; numpy's own function makes a vector of a scalar."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
