"""Windows of constant tables, as long as a run's sequence: relative positions, biases that fall with the distance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import NodeProto, helper

Agrees = Callable[..., None]
LONGEST = 10  # what the table is made for


def window(name: str, start: str, end: str) -> list[NodeProto]:
    """Return the nodes that cut the rows from one number to another out of the table."""
    return [
        helper.make_node("Unsqueeze", [start, "zero"], [f"{name}_start"]),
        helper.make_node("Unsqueeze", [end, "zero"], [f"{name}_end"]),
        helper.make_node("Slice", ["table", f"{name}_start", f"{name}_end", "zero"], [name]),
    ]


@pytest.mark.parametrize("end", ["end", "last"])
def test_a_window_that_begins_at_a_length_less_than_the_longest_is_compiled(agrees: Agrees, end: str) -> None:
    """Twelve are more than the table is made for: its bounds count from the end then, as the specification has it."""
    numbers = np.random.default_rng(0)
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "none"], ["length"], axis=0),
        helper.make_node("Sub", ["longest", "length"], ["start"]),
        helper.make_node("Add", ["before", "length"], ["end"]),
        *window("positions", "start", end),
        helper.make_node("Transpose", ["positions"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "columns"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=-1),
    ]
    constants = {
        "table": numbers.normal(size=(2 * LONGEST - 1, 8)).astype(np.float32), "longest": np.array(LONGEST),
        "before": np.array(LONGEST - 1), "last": np.array(2**63 - 1), "none": np.array(0), "zero": np.array([0]),
    }  # fmt: skip
    agrees(nodes, constants, ["n", 8], (3, 8), (10, 8), (1, 8), (12, 8), (10, 8))
