"""NodeChecksState: what must hold of a node's operands before its kernel runs, asked once for the same shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.ir.nodes import Node
from ort_core.kernels.kernel import RunGuard
from ort_core.kernels.operand_growth import check_growth, depends_on_shapes, find_growth, is_small
from ort_core.kernels.preconditions.conditions import ArrayConditions
from ort_core.kernels.preconditions.table import find_precondition


class NodeChecksState:
    """The preconditions of one node, and how large a result it asks for; safe from many threads.

    Both follow from types and shapes, but for results whose size is data. Operands like those of the last run, which
    passed, are not looked at again: the checks of a small node take longer than its kernel.
    """

    __slots__ = ("_growth", "_node", "_opset", "_passed", "_precondition", "_remembers")

    def __init__(self, node: Node, opset: int) -> None:
        self._node, self._opset = node, opset
        self._precondition = find_precondition(node.domain, node.op_type, opset)
        self._growth = find_growth(node.domain, node.op_type)
        self._remembers = self._growth is None or depends_on_shapes(self._growth)
        self._passed: list[tuple[tuple[int, ...], np.dtype] | None] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to check."""
        return self._precondition is not None or self._growth is not None

    def check(self, inputs: Sequence[object], guard: RunGuard) -> None:
        """Check the operands of a run.

        Raises:
            InvalidArgument: a precondition does not hold.
            AllocationLimitExceeded: the result would be larger than the guard allows.
        """
        found = [(x.shape, x.dtype) if isinstance(x, np.ndarray) else None for x in inputs]
        if found == self._passed:
            return
        if self._precondition is not None:
            self._precondition(ArrayConditions(self._node, self._opset, inputs))
        if self._growth is not None:
            check_growth(self._growth, self._node, inputs, guard)
        if self._remembers and (self._growth is None or is_small(inputs)):  # else another guard may forbid it
            self._passed = found
