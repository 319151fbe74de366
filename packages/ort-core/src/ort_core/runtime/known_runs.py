"""KnownRuns: runs of a plan whose feeds are plain arrays of types and shapes that an ordinary run has checked before.

What an ordinary run looks at again each time, names, types, sizes that must agree, takes longer than a small model's
kernels. Providers whose plan is one native call offer a shorter way (``DirectCalls``); this one serves all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import EPFail
from ort_core.forks import new_lock
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.runtime.limits import DEFAULT_RUN
from ort_core.runtime.plan import detached
from ort_core.runtime.state import PlanRunState

if TYPE_CHECKING:
    from ort_core.providers.compiled import DirectFunction
    from ort_core.runtime.plan import ExecutionPlan
    from ort_core.tensors.runtime_value import RuntimeValue

MAX_SIGNATURES = 64  # more are forgotten, all at once
_IN_ORDER = 0x101  # numpy's flags of arrays that are C-contiguous and aligned

Signature = tuple[tuple[int, ...], ...]


class KnownRuns:
    """Runs of a plan by its steps; a ``DirectCalls`` whose errors are those of the ordinary run."""

    def __init__(self, plan: ExecutionPlan, inputs: Sequence[tuple[str, int, np.dtype]]) -> None:
        self._inputs, self._count = tuple(inputs), len(inputs)
        self._signatures: frozenset[Signature] = frozenset()
        self._run = plan.plain_run() or plan.run_steps
        self._template = plan.new_values()
        self._state = PlanRunState(DEFAULT_RUN)  # nothing of it changes
        self._lock = new_lock()

    @classmethod
    def of(cls, plan: ExecutionPlan) -> KnownRuns | Rejection:
        """Return the runs of a plan, or why all of them go the ordinary way."""
        inputs = []
        for value in plan.graph.inputs:
            if value.constant is not None:
                continue
            if not _is_numeric(value.type):
                return Rejection(f"input {value.name!r} is not a tensor of numbers")
            assert isinstance(value.type, TensorType)
            inputs.append((value.name, plan.input_slots[value.name], value.type.dtype.numpy))
        others = [value.name for value in plan.graph.outputs if not _is_numeric(value.type)]
        return Rejection(f"output {others[0]!r} is not a tensor of numbers") if others else cls(plan, inputs)

    @property
    def call(self) -> DirectFunction:
        """The one function; what is known changes beneath it."""
        return self._call

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Take note of the checked feeds of an ordinary run that succeeded."""
        arrays = [feeds.get(name) for name, _, _ in self._inputs]
        signature = tuple([array.shape for array in arrays if type(array) is np.ndarray])
        if len(signature) != len(feeds) or len(signature) != self._count or signature in self._signatures:
            return
        with self._lock:
            known = self._signatures if len(self._signatures) < MAX_SIGNATURES else frozenset[Signature]()
            self._signatures = known | {signature}

    def _call(self, feeds: object, outputs: object) -> list[RuntimeValue] | None:
        """Return the outputs, ``None`` where the ordinary run must go on: for feeds of another kind, or a fallback.

        Raises:
            OrtError: a node failed; an ordinary run would fail alike.
        """
        if outputs is not None or type(feeds) is not dict or len(feeds) != self._count:
            return None
        values, shapes = self._template.copy(), []
        for name, slot, dtype in self._inputs:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.flags.num & _IN_ORDER != _IN_ORDER:
                return None
            values[slot] = array
            shapes.append(array.shape)
        if tuple(shapes) not in self._signatures:
            return None
        try:
            return detached(self._run(values, self._state), feeds.values())
        except EPFail:
            return None  # the ordinary run may fall back


def _is_numeric(known: object) -> bool:
    return isinstance(known, TensorType) and known.dtype not in (DataType.STRING, DataType.UNDEFINED)
