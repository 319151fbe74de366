"""Integer tensors whose elements follow from sizes: evaluated with the sizes, stored only if a kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingContents
from ort_core.plugin.ir import DataType, Node, SymbolicDim, TensorType, Value

MAX_WORDS = 128


def contents_of(value: Value, contents: Mapping[Value, np.ndarray]) -> PendingContents | None:
    """Return what is known of a value if that is everything."""
    known = contents.get(value)
    if known is None or not isinstance(value.type, TensorType) or known.size > MAX_WORDS:
        return None
    if value.type.dtype not in (DataType.INT64, DataType.INT32) or value.type.shape != known.shape:
        return None
    elements = tuple(known.reshape(-1))
    if not all(isinstance(e, (int, SymbolicDim)) for e in elements):
        return None
    return PendingContents(elements, known.shape, value.type.dtype)


def known_contents(lowering: Lowering, node: Node) -> None:
    """Whatever the node does, its results are known: it reads nothing."""
    for value in node.present_outputs():
        found = contents_of(value, lowering.contents)
        assert found is not None, "asked for before"
        lowering.set(value, found)
