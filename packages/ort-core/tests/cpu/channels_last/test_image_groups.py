"""Groups of image operators: every node is compiled, and the results are those of the reference provider."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.convolutions import winograd_blocks
from ort_core.cpu.lowering.rules.convolutions import winograd_steps
from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
Agrees = Callable[..., None]


def numbers(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def test_squeeze_and_excitation_scales_the_input_of_the_next_convolution(agrees: Agrees) -> None:
    nodes = [
        N("Conv", ["x", "depthwise"], ["a"], group=20, pads=[1, 1, 1, 1]),
        N("ReduceMean", ["a", "axes"], ["pooled"], keepdims=1),
        N("Conv", ["pooled", "squeeze"], ["narrow"]),
        N("Relu", ["narrow"], ["rectified"]),
        N("Conv", ["rectified", "excite"], ["wide"]),
        N("Sigmoid", ["wide"], ["scale"]),
        N("Mul", ["a", "scale"], ["scaled"]),
        N("Conv", ["scaled", "project", "bias"], ["y"]),
    ]
    constants = {
        "depthwise": numbers(1, 20, 1, 3, 3), "axes": np.array([2, 3], np.int64), "squeeze": numbers(2, 5, 20, 1, 1),
        "excite": numbers(3, 20, 5, 1, 1), "project": numbers(4, 12, 20, 1, 1, scale=0.2), "bias": numbers(5, 12),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 20, "H", 9], (1, 20, 7, 9), (3, 20, 12, 9))


@pytest.mark.parametrize("kind", ["input_is_read_twice", "factor_per_pixel", "window_of_3x3"])
def test_product_that_is_no_channel_scale_is_computed_before_the_convolution(agrees: Agrees, kind: str) -> None:
    taps = 3 if kind == "window_of_3x3" else 1
    nodes = [N("Mul", ["x", "factor"], ["scaled"]), N("Conv", ["scaled", "w"], ["z"], pads=[taps // 2] * 4)]
    nodes += (
        [N("Concat", ["z", "scaled"], ["y"], axis=1)] if kind == "input_is_read_twice" else [N("Relu", ["z"], ["y"])]
    )
    factor = numbers(1, 1, 1, 1, 6) if kind == "factor_per_pixel" else numbers(1, 1, 8, 1, 1)
    agrees(nodes, {"factor": factor, "w": numbers(2, 5, 8, taps, taps)}, ["N", 8, 5, 6], (2, 8, 5, 6))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("channels", [5, 40, 160])
def test_reduction_over_space_reads_channels_last_images(
    agrees: Agrees, operator: str, keep: int, channels: int
) -> None:
    nodes = [
        N("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        N(operator, ["a", "axes"], ["b"], keepdims=keep),
        N("Neg", ["b"], ["y"]),
    ]
    constants = {"w": numbers(1, channels, 3, 3, 3), "axes": np.array([-1, 2], np.int64)}
    agrees(nodes, constants, ["N", 3, 6, "W"], (1, 3, 6, 5), (2, 3, 6, 17))


@pytest.mark.parametrize(
    ("operator", "axes", "keep"),
    [("ReduceMax", [3], 0), ("ReduceMean", [2], 1), ("ReduceSum", [0, 3], 0), ("ReduceMin", [3], 1)],
    ids=str,
)
def test_reduction_over_one_axis_of_space_is_turned_behind_it(
    agrees: Agrees, operator: str, axes: list[int], keep: int
) -> None:
    """What is left has another order of axes in memory than the result."""
    nodes = [
        N("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), N(operator, ["a", "axes"], ["y"], keepdims=keep)
    ]  # fmt: skip
    constants = {"w": numbers(1, 21, 3, 3, 3), "axes": np.array(axes, np.int64)}
    agrees(nodes, constants, ["N", 3, "H", "W"], (1, 3, 6, 5), (2, 3, 6, 17))


@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_pooling_that_rounds_its_size_up_stops_at_the_image(agrees: Agrees, operator: str, counts: int) -> None:
    attributes = {"count_include_pad": counts} if operator == "AveragePool" else {}
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 0, 1]}
    nodes = [N(operator, ["x"], ["a"], ceil_mode=1, **window, **attributes), N("Neg", ["a"], ["y"])]
    agrees(nodes, {}, ["N", 18, 8, 10], (2, 18, 8, 10))


@pytest.mark.parametrize(
    ("attributes", "given"),
    [
        ({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, "scales"),
        ({}, "scales"),
        ({"nearest_mode": "round_prefer_ceil"}, "sizes"),
    ],
    ids=["floored", "centered", "by_sizes"],
)
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (4, 5)])
def test_resize_by_whole_factors_repeats_pixels(
    agrees: Agrees, attributes: dict[str, str], given: str, factors: tuple[int, int]
) -> None:
    is_sized = given == "sizes"
    names = ["a", "", "", "given"] if is_sized else ["a", "", "given"]
    nodes = [N("Conv", ["x", "w"], ["a"]), N("Resize", names, ["b"], **attributes), N("Neg", ["b"], ["y"])]
    scales, sizes = np.array([1, 1, *factors], np.float32), np.array([2, 7, 5 * factors[0], 6 * factors[1]], np.int64)
    constants = {"w": numbers(1, 7, 3, 1, 1), "given": sizes if is_sized else scales}
    if is_sized:
        agrees(nodes, constants, [2, 3, 5, 6], (2, 3, 5, 6))
    else:
        agrees(nodes, constants, ["N", 3, "H", 6], (2, 3, 5, 6), (1, 3, 1, 6))


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (0, 2, 1, 0)])
@pytest.mark.parametrize(
    ("inputs", "outputs", "height", "width"), [(32, 48, 9, 12), (64, 32, 12, 12), (80, 96, 13, 11)]
)
def test_convolution_of_many_tiles_and_channels_has_bias_residual_and_activation(
    agrees: Agrees, inputs: int, outputs: int, height: int, width: int, pads: tuple[int, ...]
) -> None:
    nodes = [
        N("Conv", ["x", "first"], ["a"]),
        N("Conv", ["a", "w", "bias"], ["b"], pads=pads),
        N("Conv", ["b", "last"], ["c"]),
        N("Add", ["b", "c"], ["d"]),
        N("Relu", ["d"], ["e"]),
        N("Conv", ["e", "w2", "bias2"], ["f"], pads=[1, 1, 1, 1]),
        N("Add", ["e", "f"], ["g"]),
        N("Relu", ["g"], ["y"]),
    ]
    constants = {
        "first": numbers(1, inputs, 3, 1, 1), "w": numbers(2, outputs, inputs, 3, 3, scale=0.06),
        "bias": numbers(3, outputs), "last": numbers(4, outputs, outputs, 1, 1, scale=0.1),
        "w2": numbers(5, outputs, outputs, 3, 3, scale=0.05), "bias2": numbers(6, outputs),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, height, width], (1, 3, height, width), (3, 3, height, width))


@pytest.mark.parametrize("sizes", ["open", "known"])
def test_winograd_takes_images_of_any_size_block_by_block(
    agrees: Agrees, partitions: list[CpuPartition], sizes: str
) -> None:
    nodes = [
        N("Conv", ["x", "first"], ["a"]),
        N("Conv", ["a", "w", "bias"], ["b"], pads=[1, 1, 1, 1]),
        N("Add", ["a", "b"], ["c"]),
        N("Relu", ["c"], ["d"]),
        N("Conv", ["d", "w2"], ["y"], pads=[0, 2, 1, 0]),
    ]
    constants = {
        "first": numbers(1, 32, 2, 1, 1), "w": numbers(2, 32, 32, 3, 3, scale=0.06), "bias": numbers(3, 32),
        "w2": numbers(4, 64, 32, 3, 3, scale=0.05),
    }  # fmt: skip
    shapes = [(1, 2, 3, 2), (3, 2, 21, 17), (1, 2, 47, 46)] if sizes == "open" else [(1, 2, 47, 46)]
    agrees(nodes, constants, ["N", 2, "H", "W"] if sizes == "open" else ["N", 2, 47, 46], *shapes)
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert sum("Winograd" in step.operators for step in steps) == 2


@pytest.mark.parametrize(
    ("groups", "channels", "shape"), [(2, (32, 48), (1, 9, 12)), (3, (64, 32), (2, 13, 11)), (9, (32, 32), (2, 8, 8))]
)
def test_winograd_takes_each_group_by_itself(
    agrees: Agrees, partitions: list[CpuPartition], groups: int, channels: tuple[int, int], shape: tuple[int, int, int]
) -> None:
    """With bias, factors of channels, a residual and an activation; of a part of an image's channels, and into one."""
    (inputs, outputs), (batch, height, width) = channels, shape
    read, made = groups * inputs, groups * outputs
    nodes = [
        N("Conv", ["x", "first"], ["a"]),
        N("Split", ["a", "parts"], ["b", "rest"], axis=1),
        N("Conv", ["b", "w", "bias"], ["c"], pads=[1, 1, 1, 1], group=groups),
        N("Mul", ["c", "factors"], ["d"]),
        N("Conv", ["b", "residual"], ["e"]),
        N("Add", ["d", "e"], ["f"]),
        N("Relu", ["f"], ["g"]),
        N("Conv", ["g", "w2", "bias2"], ["h"], pads=[0, 2, 1, 1], group=groups),
        N("Conv", ["g", "last"], ["i"], pads=[0, 1, 0, 0]),
        N("Concat", ["i", "h"], ["y"], axis=1),
    ]
    constants = {
        "first": numbers(1, read + 16, 3, 1, 1), "parts": np.array([read, 16]),
        "w": numbers(2, made, inputs, 3, 3, scale=0.06), "bias": numbers(3, made), "factors": numbers(4, made, 1, 1),
        "residual": numbers(5, made, read, 1, 1, scale=0.1), "w2": numbers(6, read, outputs, 3, 3, scale=0.06),
        "bias2": numbers(7, read), "last": numbers(8, 16, made, 2, 1, scale=0.1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, height, width], (batch, 3, height, width), (batch + 2, 3, height, width))
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert sum("Winograd" in step.operators for step in steps) == 2


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("batch", "height", "width"), [(1, 9, 11), (2, 12, 10), ("N", 8, 9), ("N", "H", "W"), (1, "H", 13)]
)
def test_winograd_takes_many_channels_as_a_whole_or_in_blocks(
    agrees: Agrees, partitions: list[CpuPartition], monkeypatch: pytest.MonkeyPatch, batch: int | str,
    height: int | str, width: int | str, is_whole: bool,
) -> None:  # fmt: skip
    """With a bias, a residual and an activation; of a part of an image's channels, and among others."""
    monkeypatch.setattr(winograd_steps, "MOST_NBYTES", winograd_steps.MOST_NBYTES if is_whole else 0)
    monkeypatch.setattr(winograd_blocks, "FAR_TILES", 16)
    nodes = [
        N("Conv", ["x", "first"], ["a"]),
        N("Split", ["a", "parts"], ["b", "rest"], axis=1),
        N("Conv", ["b", "w", "bias"], ["c"], pads=[1, 1, 1, 1]),
        N("Add", ["c", "rest"], ["d"]),
        N("Relu", ["d"], ["e"]),
        N("Conv", ["b", "w2", "bias"], ["f"], pads=[0, 2, 2, 0]),
        N("Concat", ["e", "f"], ["g"], axis=1),
        N("Conv", ["g", "last"], ["y"]),
    ]
    constants = {
        "first": numbers(1, 848, 3, 1, 1), "parts": np.array([560, 288]), "bias": numbers(3, 288),
        "w": numbers(2, 288, 560, 3, 3, scale=0.014), "w2": numbers(4, 288, 560, 3, 3, scale=0.014),
        "last": numbers(5, 8, 576, 1, 1, scale=0.04),
    }  # fmt: skip
    known = [8 if isinstance(size, str) else size for size in (height, width)]
    sizes = [(size, 3, *known) for size in ([batch] if isinstance(batch, int) else [0, 1, 3])]
    sizes += [(1, 3, 1, 1), (2, 3, 21, 14)] if width == "W" else []
    agrees(nodes, constants, [batch, 3, height, width], *sizes)
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    assert sum(("WinogradProduct" if is_whole else "Winograd") in step.operators for step in steps) == 2


@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("most_nbytes", [0, 1 << 18, 1 << 26])  # blocks; some phases at once; all of them
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sizes", [(1, 17, 13), (2, 9, 24), ("N", 12, 11), ("N", "H", "W")])
@pytest.mark.parametrize(
    ("dilations", "pads"),
    [((2, 2), (2, 2, 2, 2)), ((1, 3), (0, 3, 2, 3)), ((4, 1), (5, 0, 3, 1)), ((2, 2), (3, 0, 1, 7))],
)
def test_winograd_takes_each_phase_of_a_dilated_window(
    agrees: Agrees, partitions: list[CpuPartition], monkeypatch: pytest.MonkeyPatch, dilations: tuple[int, int],
    pads: tuple[int, ...], sizes: tuple[int | str, ...], groups: int, most_nbytes: int,
) -> None:  # fmt: skip
    """With a bias, a residual and an activation; of a part of an image's channels, and among others."""
    monkeypatch.setattr(winograd_steps, "MOST_NBYTES", most_nbytes)
    monkeypatch.setattr(winograd_steps, "MOST_PRODUCTS", 100)
    monkeypatch.setattr(winograd_steps, "LEAST_PHASE", 0)
    wide, made = groups * 32, groups * 48
    nodes = [
        N("Conv", ["x", "first"], ["a"]),
        N("Split", ["a", "parts"], ["b", "rest"], axis=1),
        N("Conv", ["b", "w", "bias"], ["c"], pads=[dilations[0], dilations[1]] * 2, dilations=dilations, group=groups),
        N("Add", ["c", "rest"], ["d"]),
        N("Relu", ["d"], ["e"]),
        N("Conv", ["b", "last"], ["f"]),
        N("Concat", ["e", "f"], ["g"], axis=1),
        N("Conv", ["e", "w2"], ["h"], pads=pads, dilations=dilations, group=groups),
        N("Concat", ["g", "e"], ["i"], axis=1),
        N("Conv", ["i", "final"], ["j"], pads=pads, dilations=dilations, kernel_shape=[3, 3]),
        N("Add", ["h", "j"], ["y"]),
    ]
    constants = {
        "first": numbers(1, wide + made, 3, 1, 1), "parts": np.array([wide, made]), "bias": numbers(3, made),
        "w": numbers(2, made, 32, 3, 3, scale=0.06), "last": numbers(4, 8, wide, 1, 1, scale=0.1),
        "w2": numbers(5, made, 48, 3, 3, scale=0.05), "final": numbers(6, made, 2 * made + 8, 3, 3, scale=0.03),
    }  # fmt: skip
    batch, *size = sizes
    images = [
        (n, 3, *(7 if isinstance(each, str) else each for each in size))
        for n in ([batch] if isinstance(batch, int) else [1, 3])
    ]
    images += [(1, 3, 18, 15)] if "H" in sizes else []
    agrees(nodes, constants, [batch, 3, *size], *images)
    names = [
        name
        for made in partitions
        for program in made.native_programs
        for step in program.steps
        for name in step.operators
    ]
    assert any(name in ("Winograd", "WinogradProduct") for name in names)


@pytest.mark.parametrize(("channels", "outputs"), [(32, 32), (256, 256), (512, 512), (2048, 80)])
def test_winograd_error_is_that_of_a_float32_sum(channels: int, outputs: int) -> None:
    x, w = numbers(1, 1, channels, 16, 16), numbers(2, outputs, channels, 3, 3, scale=(9 * channels) ** -0.5)
    info = helper.make_tensor_value_info
    ins, outs = [info("x", TensorProto.FLOAT, x.shape)], [info("y", TensorProto.FLOAT, None)]
    nodes = [N("Conv", ["x", "w"], ["a"]), N("Neg", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "sum", ins, outs, initializer=[numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    expected = -np.tensordot(windows, w.astype(np.float64), ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    # The error that the other convolution kernels are held to, times two for the transforms.
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * np.finfo(np.float32).eps * (4 + (9 * channels) ** 0.5))


@pytest.mark.parametrize("width", [24, 70])
@pytest.mark.parametrize("readers", [1, 2])
def test_border_is_made_while_images_become_channels_last(agrees: Agrees, width: int, readers: int) -> None:
    nodes = [N("Conv", ["x", "w"], ["a"], pads=[1, 0, 2, 1], strides=[2, 2])]
    nodes += [N("Conv", ["x", "v"], ["b"], strides=[2, 2]), N("Concat", ["a", "b"], ["c"], axis=1)][: 2 * (readers - 1)]
    nodes.append(N("Relu", ["c" if readers == 2 else "a"], ["y"]))
    constants = {"w": numbers(1, 8, 3, 3, 3), "v": numbers(2, 5, 3, 1, 2)}
    agrees(nodes, constants, ["N", 3, "H", width], (1, 3, 9, width), (2, 3, 13, width))
