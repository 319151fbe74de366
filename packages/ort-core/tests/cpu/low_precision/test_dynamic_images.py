"""Images whose range is found while a run goes on, between convolutions: read as they lie, nothing is moved.

All sums are whole numbers that float32 holds, so that every order of adding gives the same levels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node


def quantized(place: int, value: str, result: str, **attributes: object) -> list[NodeProto]:
    """Return a convolution as quantize_dynamic writes it."""
    q, s, z, i, f = (f"{each}{place}" for each in "qszif")
    return [
        N("DynamicQuantizeLinear", [value], [q, s, z]), N("ConvInteger", [q, f"w{place}", z], [i], **attributes),
        N("Cast", [i], [f], to=TensorProto.FLOAT), N("Mul", [f, s], [result]),
    ]  # fmt: skip


@pytest.mark.parametrize("channels", [5, 32])
def test_dynamically_quantized_convolutions_move_images_at_the_ends_only(
    agrees: Callable[..., None], partitions: list[CpuPartition], channels: int
) -> None:
    random = np.random.default_rng(channels)
    constants = {
        "four": np.float32(4), "w0": random.integers(-3, 4, (channels, 3, 3, 3)).astype(np.float32),
        "w1": random.integers(-60, 60, (channels, 1, 3, 3)).astype(np.int8),
        "w2": random.integers(-60, 60, (8, channels, 1, 1)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        N("Mul", ["x", "four"], ["m"]), N("Round", ["m"], ["r"]), N("Conv", ["r", "w0"], ["c"], pads=[1] * 4),
        *quantized(1, "c", "d", group=channels, pads=[1] * 4), N("Relu", ["d"], ["e"]), *quantized(2, "e", "g"),
        N("Relu", ["g"], ["y"]),
    ]  # fmt: skip
    agrees(nodes, constants, ["N", 3, "H", "W"], (1, 3, 7, 9), (2, 3, 12, 1), (0, 3, 4, 4))
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert sum("Layout" in map(str, step.operators) for step in steps) <= 2, "only the ends lie channels-first"
