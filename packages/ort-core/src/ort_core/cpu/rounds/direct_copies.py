"""DirectCopies: nodes that give a tensor another shape, or none, as one direct call that copies bytes.

    y = Reshape(x, [2, -1])         z = Unsqueeze(Identity(x), [0])

Kernels return views in no time, but Python takes 4 us around them, and what a run returns is copied anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.direct.direct_calls import Signature, build_direct_calls
from ort_core.cpu.direct.moved_words import MovedWords, WordMemory
from ort_core.cpu.partition.admission import FREE
from ort_core.cpu.partition.bodies import BodyRunState
from ort_core.cpu.program.output_memory import OutputMemory
from ort_core.cpu.program.program import UNGUARDED, BoundState
from ort_core.cpu.rounds.bound_rounds import Place, copy_rows, rounds_call_address
from ort_core.cpu.rounds.round_code import RoundsCall
from ort_core.cpu.threads.pool_code import ALONE
from ort_core.plugin import DirectCalls, Rejection
from ort_core.plugin.ir import DataType, Graph, Node, TensorType

if TYPE_CHECKING:
    from ort_core.cpu.partition.segments import LazyKernels

MOST_NBYTES = 1 << 22  # of a run: more time than that is not Python's
LOCKED_NBYTES = 1 << 20  # below which the interpreter lock is kept


class BindableCopies:
    """Nodes as what direct calls run: see ``direct.direct_calls.Bindable``."""

    def __init__(self, kernels: LazyKernels, input_dtypes: Sequence[np.dtype]) -> None:
        self._kernels, self.input_dtypes, self._memory = kernels, tuple(input_dtypes), OutputMemory()

    @property
    def entry_points(self) -> tuple[int, int]:
        """What runs no round, but the copies in front of the first."""
        return rounds_call_address(), 0

    def bind(self, signature: Signature) -> BoundState | None:
        """Return the copies that stand for the views that kernels return, ``None`` where they return other arrays."""
        sizes = [math.prod(shape) * each.itemsize for shape, each in zip(signature, self.input_dtypes, strict=True)]
        if sum(sizes) > MOST_NBYTES:
            return None
        fed = [np.empty(shape, dtype) for shape, dtype in zip(signature, self.input_dtypes, strict=True)]
        given = self._kernels.run(fed, BodyRunState(UNGUARDED, None))
        rows, results = [], []
        for view in given:
            source = next((array for array in fed if isinstance(view, np.ndarray) and _is_all_of(view, array)), None)
            if source is None:
                return None
            assert isinstance(view, np.ndarray)
            results.append(np.empty_like(view))
            rows.append((Place.at(source), Place.at(results[-1]), view.nbytes))
        copies, record, error = copy_rows(rows), np.zeros(RoundsCall.COUNT, np.int64), np.zeros(1, np.int64)
        record[RoundsCall.FIRST_COPIES], record[RoundsCall.FIRST_COUNT] = copies.ctypes.data, len(copies)
        moved = MovedWords(fed, results)
        moved.add_table(copies)
        self._memory.keep((each.shape, each.dtype) for each in results)
        total = sum(each.nbytes for each in results)
        return BoundState(
            WordMemory((copies, record, error)), record.ctypes.data, 0, ALONE, error.ctypes.data, moved.inputs,
            moved.outputs, tuple([each.shape for each in results]), tuple([each.dtype for each in results]), total, {},
            self._memory, total < LOCKED_NBYTES,
        )  # fmt: skip


def build_copied_calls(
    kernels: LazyKernels, sources: Sequence[str | np.ndarray], order: Sequence[int]
) -> DirectCalls | Rejection:
    """Return the direct calls of nodes that give other shapes, or why there are none.

    Args:
        kernels: the nodes.
        sources: for each of their inputs the name of its feed, or the constant that it always is.
        order: which of their outputs each output of the call is.
    """
    graph = kernels.graph
    dtypes = _numbers(graph)
    if dtypes is None or not all(map(_only_shapes, graph)):
        return Rejection("parts of the model run by numpy kernels")
    try:
        rounds_call_address()
    except ImportError as error:
        return Rejection(f"the code of copies was not stored, and there is no compiler: {error}")
    return build_direct_calls(BindableCopies(kernels, dtypes), sources, order)


def _numbers(graph: Graph) -> list[np.dtype] | None:
    found = [value.type.dtype for value in graph.inputs if isinstance(value.type, TensorType)]
    if len(found) < len(graph.inputs) or DataType.STRING in found or DataType.UNDEFINED in found:
        return None
    return [dtype.numpy for dtype in found]


def _only_shapes(node: Node) -> bool:
    """Return whether a node's result is its first input in a shape that follows from that one's, and from constants."""
    others = [value for value in node.inputs[1:] if value is not None]
    return not node.domain and node.op_type in FREE and all(value.constant is not None for value in others)


def _is_all_of(view: np.ndarray, array: np.ndarray) -> bool:
    return (
        view.flags.c_contiguous
        and (view.dtype, view.nbytes) == (array.dtype, array.nbytes)
        and view.ctypes.data == array.ctypes.data
    )
