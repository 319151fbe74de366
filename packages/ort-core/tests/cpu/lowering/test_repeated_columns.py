"""Pairs of transposed features: columns that broadcasting reads many times are copied, and decide no memory order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from ort_core.cpu.lowering.operands import _repeats
from ort_core.cpu.partition.partition import CpuPartition

Agrees = Callable[..., None]


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [
        ((4, 1, "t"), (4, "t", "t"), True),
        ((1, 5), (3, 5), False),
        ((5,), (4, 5), True),
        ((2, 5), (2, 5), False),
        ((1, 1, 5), (2, 2, 5), True),
        (("n", 5), ("n", 5), False),
    ],
)
def test_sizes_tell_how_often_elements_are_read(small, large, expected) -> None:
    assert _repeats(small, large) is expected


@pytest.mark.parametrize("channels", [1, 4, 16, 17])
@pytest.mark.parametrize("op_type", ["Sub", "Mul"])
def test_pairs_of_positions(
    agrees: Agrees, partitions: list[CpuPartition], op_type: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["c"], perm=[0, 2, 1]),
        helper.make_node("Unsqueeze", ["c", "three"], ["u"]),
        helper.make_node("Unsqueeze", ["c", "two"], ["v"]),
        helper.make_node(op_type, ["u", "v"], ["d"]),
        helper.make_node("ReduceMax", ["d", "three"], ["m"], keepdims=1),
        helper.make_node("Sub", ["d", "m"], ["e"]),
        helper.make_node("Exp", ["e"], ["y"]),
    ]
    constants = {"two": np.array([2]), "three": np.array([3])}
    agrees(nodes, constants, ["n", "t", channels], (1, 40, channels), (2, 1, channels), (3, 17, channels))


def test_channels_last_images_keep_their_order_beside_what_broadcasts_to_them(agrees: Agrees) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMean", ["a", "two"], ["row"], keepdims=1),
        helper.make_node("ReduceMean", ["a", "three"], ["column"], keepdims=1),
        helper.make_node("Mul", ["row", "column"], ["gate"]),
        helper.make_node("Add", ["gate", "row"], ["more"]),
        helper.make_node("Mul", ["a", "more"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["y"]),
    ]
    generator = np.random.default_rng(0)
    weights = {name: generator.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8 for name in "wv"}
    constants = {"two": np.array([2]), "three": np.array([3]), **weights}
    agrees(nodes, constants, ["n", 8, "h", "w_"], (1, 8, 9, 12), (2, 8, 16, 5))
