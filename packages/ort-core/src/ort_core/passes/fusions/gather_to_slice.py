"""GatherToSliceFusion: picking a range of indices is slicing.

y = Gather(x, Range(start, limit, step)) {axis}     ->  y = Slice(x, [start], [limit], [axis], [step])

where start and step are constants, not negative and positive, and limit is a size: no index counts from the end.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import dtype_of, number_of
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule

_PICKS = frozenset({"Squeeze", "Gather", "Unsqueeze", "Reshape", "Slice", "Cast"})


class GatherToSliceFusion(RewriteRule[None]):
    """Replace the Gather by a Slice."""

    name = "GatherToSliceFusion"

    def build_pattern(self) -> Pattern:
        """Return a Gather of a range."""
        return op(
            "Gather",
            var("x"),
            op("Range", var("start"), var("limit"), var("step"), shared=True, name="range"),
            since=10,
        )

    def check(self, match: Match) -> Rejection | None:
        """No index may be negative, and the limit must not be read as counted from the end."""
        start, step = number_of(match["start"]), number_of(match["step"])
        if dtype_of(match["start"]) not in (DataType.INT32, DataType.INT64):
            return Rejection("the range is not of integers that Slice takes", match.root)
        if start is None or start < 0 or step is None or step <= 0:
            return Rejection("start and step are not known to be at least 0 and 1", match.root)
        if not _is_size(match["limit"]):
            return Rejection("the limit is not known to be a size", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put the Slice there."""
        patch = GraphPatch(match.model, match.root)
        whole = patch.constant(np.array([-1], np.int64), "vector")
        axis = np.array([match.root.int_attribute("axis", 0)], dtype_of(match["start"]).numpy)
        bounds = [patch.op("Reshape", [match[name], whole]) for name in ("start", "limit")]
        step = patch.op("Reshape", [match["step"], whole])
        sliced = patch.op("Slice", [match["x"], *bounds, patch.constant(axis, "axis"), step], type=match.output.type)
        patch.replace(match.output, sliced)
        patch.remove(*match.nodes)
        return patch


def _is_size(value: Value) -> bool:
    number = number_of(value)
    if number is not None:
        return number >= 0
    node = value.producer
    while node is not None and node.op_type in _PICKS and node.inputs[0] is not None:
        node = node.inputs[0].producer
    return node is not None and node.op_type == "Shape"
