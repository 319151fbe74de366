"""Convolutions whose taps read the border for many results: each tap by itself, and none that reads nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution, PairConvolution
from ort_core.cpu.lowering.rules.convolutions import window_taps as rules
from ort_core.cpu.lowering.rules.convolutions.window_taps import window_taps
from ort_core.cpu.lowering.views import Buffer, Place, View, channels_last, count_of, ordered_strides
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.plugin.ir import DataType, KnownDim, SymbolicDim

Agrees = Callable[..., None]
N = helper.make_node
H, W = SymbolicDim.named("h"), SymbolicDim.named("w")


def numbers(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def images(channels: int, height: KnownDim, width: KnownDim) -> View:
    shape = (1, channels, height, width)
    strides = ordered_strides(shape, channels_last(4))
    return View(Buffer(DataType.FLOAT, count_of(shape), Place.ARENA), shape, strides, order=channels_last(4))


@pytest.mark.parametrize(
    ("inputs", "sizes", "dilation", "taps"),
    [
        (2048, (33, 33), 12, 9),
        (2048, (33, 33), 33, 1),
        (2048, (33, 12), 12, 3),
        (64, (1, 1), 1, 1),  # a window's middle alone is in an image of one pixel
        (2048, (33, 33), 1, 0),  # neighbors are read from the first cache
        (2048, (129, 129), 2, 0),  # nearly all is in the image
        (32, (9, 9), 3, 0),  # too short for nine steps
        (16, (65, 65), 24, 0),
        (512, (H, W), 12, 9),
        (512, (33, W), 40, 3),
        (256, (H, W), 12, 0),  # most may be in the image
    ],
)
def test_taps_are_multiplied_one_by_one_where_many_results_do_not_need_them(
    inputs: int, sizes: tuple[KnownDim, KnownDim], dilation: int, taps: int
) -> None:
    spec = Convolution(inputs, 256, (3, 3), dilations=(dilation, dilation))
    found = window_taps(spec, images(inputs, *sizes), images(256, *sizes), (dilation,) * 4)
    assert (1 + len(found.others) if found else 0) == taps


@pytest.mark.parametrize(
    "spec",
    [
        PairConvolution(2048, 256, (3, 3), dilations=(12, 12)),
        Convolution(2048, 256, (3, 3), dilations=(12, 12), groups=2),
    ],
)
def test_other_convolutions_are_done_as_a_whole(spec: Convolution) -> None:
    assert window_taps(spec, images(2048, 33, 33), images(256, 33, 33), (12,) * 4) is None


def test_no_tap_is_left_that_no_result_needs() -> None:
    spec = Convolution(2048, 256, (3, 5), dilations=(12, 12))
    found = window_taps(spec, images(2048, 33, 20), images(256, 33, 20), (12, 24, 12, 24))
    assert found is not None
    assert found.whole.place == (1, 2)
    assert {tap.place for tap in found.others} == {(i, j) for i in range(3) for j in (1, 2, 3)} - {(1, 2)}


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("kernel", "dilations", "strides", "pads"),
    [
        ((3, 3), (4, 4), (1, 1), (4, 4, 4, 4)),
        ((3, 3), (12, 5), (1, 1), (12, 5, 12, 5)),
        ((3, 3), (5, 3), (1, 1), (10, 0, 0, 6)),  # the last row and the first column read a pixel for each result
        ((2, 3), (3, 2), (1, 1), (3, 1, 0, 3)),
        ((3, 3), (4, 4), (2, 2), (4, 4, 4, 4)),
        ((3, 3), (3, 4), (3, 2), (3, 4, 2, 3)),
        ((1, 5), (1, 3), (1, 1), (0, 6, 0, 6)),
    ],
)
def test_taps_add_up_to_the_convolution(
    agrees: Agrees, monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int], dilations: tuple[int, int],
    strides: tuple[int, int], pads: tuple[int, ...], opened: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(rules, "LEAST_PRODUCTS", 0)
    monkeypatch.setattr(rules, "MANY_CHANNELS", 0)
    monkeypatch.setattr(rules, "MOST_KEPT", 1)
    constants = {"w": numbers(1, 72, 40, *kernel, scale=0.06), "b": numbers(2, 72), "v": numbers(3, 8, 72, 1, 1)}
    nodes = [
        N("Relu", ["x"], ["r"]),
        N("Conv", ["r", "w", "b"], ["c"], pads=pads, dilations=dilations, strides=strides),
        N("Sigmoid", ["c"], ["s"]),
        N("Mul", ["c", "s"], ["a"]),
        N("Conv", ["a", "v"], ["y"]),
    ]
    sizes = [(2, 40, 11, 13), (1, 40, 6, 7), (0, 40, 9, 9)] if opened else [(2, 40, 11, 13)]
    agrees(nodes, constants, ["n", 40, "h", "w"] if opened else [2, 40, 11, 13], *sizes)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("batch", [1, "n"])
@pytest.mark.parametrize("dilation", [5, 9])
def test_taps_of_some_channels_add_a_residual_and_are_stored_among_others(
    agrees: Agrees, partitions: list[CpuPartition], batch: int | str, dilation: int
) -> None:
    constants = {
        "first": numbers(1, 304, 3, 1, 1), "parts": np.array([272, 32]), "w": numbers(2, 32, 272, 3, 3, scale=0.02),
        "v": numbers(3, 24, 272, 3, 3, scale=0.02), "b": numbers(4, 24), "last": numbers(5, 8, 56, 1, 1, scale=0.1),
    }  # fmt: skip
    around = {"pads": [dilation] * 4, "dilations": [dilation] * 2}
    nodes = [
        N("Conv", ["x", "first"], ["a"]),
        N("Split", ["a", "parts"], ["p", "q"], axis=1),
        N("Conv", ["p", "w"], ["c"], **around),
        N("Add", ["c", "q"], ["s"]),
        N("Relu", ["s"], ["t"]),
        N("Conv", ["p", "v", "b"], ["u"], **around),
        N("Concat", ["t", "u"], ["k"], axis=1),
        N("Conv", ["k", "last"], ["y"]),
    ]
    agrees(nodes, constants, [batch, 3, 17, 9], *[(n, 3, 17, 9) for n in ([1] if batch == 1 else [1, 3])])
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert not any("Pad" in step.operators for step in steps)
