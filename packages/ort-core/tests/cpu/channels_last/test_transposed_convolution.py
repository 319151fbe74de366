"""Transposed convolutions as compiled, against the sums written down in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.lowering.rules.convolutions.transposed_phases import joined_phases, joined_weights, phases
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.tolerances import compare

Ints = Sequence[int]


def scattered(
    x: np.ndarray, w: np.ndarray, groups: int, strides: Ints, dilations: Ints, begins: Ints, sizes: Ints
) -> np.ndarray:
    """Add each input times the window to where it goes, in float64; what falls outside of ``sizes`` is lost."""
    batch, inputs, outputs = x.shape[0], x.shape[1] // groups, w.shape[1]
    room = [
        max(b + size, (i - 1) * s + (k - 1) * d + 1)
        for b, size, i, s, k, d in zip(begins, sizes, x.shape[2:], strides, w.shape[2:], dilations, strict=True)
    ]
    canvas = np.zeros((batch, groups * outputs, *room))
    for place in np.ndindex(*x.shape[2:]):
        for tap in np.ndindex(*w.shape[2:]):
            at = tuple(p * s + t * d for p, s, t, d in zip(place, strides, tap, dilations, strict=True))
            for group in range(groups):
                ins, outs = slice(group * inputs, (group + 1) * inputs), slice(group * outputs, (group + 1) * outputs)
                pixel = x[(slice(None), ins, *place)].astype(np.float64)
                canvas[(slice(None), outs, *at)] += pixel @ w[(ins, slice(None), *tap)].astype(np.float64)
    return canvas[(..., *(slice(b, b + size) for b, size in zip(begins, sizes, strict=True)))]


def session_of(
    nodes: list, constants: Mapping[str, np.ndarray], shape: Sequence[int | str]
) -> tuple[ort.InferenceSession, dict[str, str]]:
    """Return a session on the CPU provider, and why nodes were not compiled."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "transposed", [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, None)],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    compiled = [planned.step.compiled for planned in session._loaded.prepared.plan.steps]
    assert all(isinstance(each, CpuPartition) for each in compiled)
    return session, {node.op_type: reason for each in compiled for node, reason in each.refusals.items()}


def assert_near(found: np.ndarray, expected: np.ndarray, what: object) -> None:
    assert found.shape == expected.shape, what
    comparison = compare(found, expected.astype(np.float32), "approximate")
    assert comparison.passes, f"{what}: {comparison}"


def random_case(seed: int) -> tuple[dict, np.ndarray, int, list[int]]:
    """Draw attributes, weights, groups, and sizes of a small image; every output gets something from some input."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 2]))
    strides = rng.integers(1, 4, rank)
    taps = [int(rng.integers(s, s + 4)) for s in strides]
    dilations = [int(rng.choice([1, 1, 2])) if s == 1 else 1 for s in strides]
    groups = int(rng.choice([1, 1, 2, 6]))
    inputs, outputs = groups * int(rng.choice([1, 3, 8])), int(rng.choice([1, 2, 17, 40]))
    extent = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    begins = [int(rng.integers(0, (e + 1) // 2)) for e in extent]
    ends = [int(rng.integers(0, (e + 1) // 2)) for e in extent]
    attributes = {
        "strides": strides.tolist(), "dilations": dilations, "group": groups, "pads": [*begins, *ends],
        "output_padding": [int(rng.integers(0, s)) for s in strides],
    }  # fmt: skip
    weights = (rng.standard_normal((inputs, outputs, *taps)) * 0.3).astype(np.float32)
    return attributes, weights, groups, rng.integers(2, 9, rank).tolist()


@pytest.mark.parametrize("seed", range(24))
def test_any_window_stride_pads_and_groups_give_the_sums_of_float64(seed: int) -> None:
    attributes, weights, groups, space = random_case(seed)
    rng = np.random.default_rng(seed)
    outputs, rank = groups * weights.shape[1], len(space)
    bias = rng.standard_normal(outputs).astype(np.float32)
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    named = ["N", weights.shape[0], *(f"S{i}" for i in range(rank))] if seed % 2 else [2, weights.shape[0], *space]
    session, refusals = session_of(nodes, {"w": weights, "b": bias}, named)
    assert not refusals
    for image in ([2, *space], [3, *(size + 3 for size in space)]) if seed % 2 else ([2, *space],):
        x = rng.standard_normal((image[0], weights.shape[0], *image[1:])).astype(np.float32)
        begins, ends = attributes["pads"][:rank], attributes["pads"][rank:]
        sizes = [
            (i - 1) * s + (k - 1) * d + 1 + extra - b - e
            for i, s, k, d, extra, b, e in zip(
                image[1:], attributes["strides"], weights.shape[2:], attributes["dilations"],
                attributes["output_padding"], begins, ends, strict=True,
            )
        ]  # fmt: skip
        sums = scattered(x, weights, groups, attributes["strides"], attributes["dilations"], begins, sizes)
        expected = np.maximum(sums + bias.reshape(-1, *[1] * rank), 0)
        assert_near(session.run(None, {"x": x})[0], expected, attributes)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID", "wanted"])
def test_automatic_pads_and_wanted_sizes(mode: str) -> None:
    rng = np.random.default_rng(5)
    weights, x = (rng.standard_normal(s).astype(np.float32) for s in ((4, 20, 4, 5), (2, 4, 5, 6)))
    attributes: dict[str, object] = {"strides": [2, 3], "auto_pad": mode}
    begins, sizes = {
        "SAME_UPPER": ((1, 1), (10, 18)), "SAME_LOWER": ((1, 1), (10, 18)), "VALID": ((0, 0), (12, 20)),
        "wanted": ((1, 1), (11, 19)),
    }[mode]  # fmt: skip
    if mode == "wanted":
        attributes = {"strides": [2, 3], "output_shape": [11, 19]}
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["c"], **attributes), helper.make_node("Neg", ["c"], ["y"])]
    session, refusals = session_of(nodes, {"w": weights}, [2, 4, 5, 6])
    assert not refusals
    assert_near(session.run(None, {"x": x})[0], -scattered(x, weights, 1, (2, 3), (1, 1), begins, sizes), mode)


def test_upsampling_between_convolutions_is_one_program() -> None:
    rng = np.random.default_rng(9)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("ConvTranspose", ["a", "w2"], ["b"], strides=[2, 2]),
        helper.make_node("Add", ["b", "x2"], ["c"]),  # an operand of the result's shape is added behind it
        helper.make_node("Conv", ["c", "w3"], ["y"]),
    ]
    constants = {
        "w1": rng.standard_normal((6, 3, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((6, 5, 2, 2)).astype(np.float32),
        "x2": rng.standard_normal((1, 5, 8, 10)).astype(np.float32),
        "w3": rng.standard_normal((2, 5, 1, 1)).astype(np.float32),
    }
    session, refusals = session_of(nodes, constants, ["N", 3, 4, 5])
    assert not refusals
    (planned,) = session._loaded.prepared.plan.steps
    assert len(planned.step.compiled.native_programs) == 1
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    around = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    a = np.einsum("ncyxij,ocij->noyx", windows, constants["w1"])
    b = scattered(a, constants["w2"], 1, (2, 2), (1, 1), (0, 0), (8, 10)) + constants["x2"]
    assert_near(session.run(None, {"x": x})[0], np.einsum("ncyx,oc->noyx", b, constants["w3"][:, :, 0, 0]), "y")


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "pad"), [(130, 1, 128, 32, 48), (20, 3, 5, 2, 2), (7, 2, 16, 8, 4)]
)
def test_phases_of_few_channels_are_one_convolution(
    channels: int, outputs: int, kernel: int, stride: int, pad: int
) -> None:
    rng = np.random.default_rng(7)
    constants = {
        "w": rng.standard_normal((channels, outputs, kernel)).astype(np.float32),
        "b": rng.standard_normal(outputs).astype(np.float32),
        "s": rng.standard_normal((outputs, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["a"], strides=[stride], pads=[pad, pad]),
        helper.make_node("Mul", ["a", "s"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    session, refused = session_of(nodes, constants, ["n", channels, "width"])
    assert not refused
    for batch, width in ((1, 9), (2, 30)):
        x = rng.standard_normal((batch, channels, width)).astype(np.float32)
        size = (width - 1) * stride + kernel - 2 * pad
        sums = scattered(x, constants["w"], 1, [stride], [1], [pad], [size]) + constants["b"][:, None]
        (found,) = session.run(None, {"x": x})
        assert_near(found, np.maximum(sums * constants["s"], 0), (batch, width))


@pytest.mark.parametrize("axis", [None, 1])
def test_weights_that_are_held_quantized_are_compiled(axis: int | None) -> None:
    rng = np.random.default_rng(11)
    count = 1 if axis is None else 6
    integers = rng.integers(-127, 128, (9, 6, 4, 4)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, count).astype(np.float32)
    points = rng.integers(-3, 4, count).astype(np.int8)
    constants = {
        "q": integers, "s": scales if count > 1 else scales[0], "z": points if count > 1 else points[0],
        "sx": np.float32(0.03), "zx": np.uint8(100),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["i"]),
        helper.make_node("DequantizeLinear", ["i", "sx", "zx"], ["d"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1),
        helper.make_node("ConvTranspose", ["d", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    session, refused = session_of(nodes, constants, ["n", 9, 5, 7])
    assert not refused
    x = rng.standard_normal((2, 9, 5, 7)).astype(np.float32)
    levels = np.clip(np.round(x / np.float32(0.03)) + 100, 0, 255)
    weights = (integers.astype(np.float64) - points.reshape(-1, 1, 1)) * scales.reshape(-1, 1, 1)
    (found,) = session.run(None, {"x": x})
    assert_near(found, scattered((levels - 100) * 0.03, weights, 1, [2, 2], [1, 1], [1, 1], [10, 14]), axis)


def test_phases_are_joined_where_that_costs_no_more() -> None:
    few, many = (joined_phases(phases(4, 2, 1, 1, 0), outputs, 16) for outputs in (3, 48))
    assert few is not None
    assert (few.start, few.taps) == (-1, (0, 1, 2))
    assert many is None  # 3 taps of 96 channels are more than 2 x 2 of 48
    assert joined_phases(phases(5, 2, 1, 2, -1), 3, 16) is None  # one phase has a result less
    weights = joined_weights(np.arange(1.0, 5.0).reshape(1, 1, 1, 4), phases(4, 2, 1, 1, 0), few)
    assert weights.reshape(2, 3).tolist() == [[4.0, 2.0, 0.0], [0.0, 3.0, 1.0]]


def test_a_window_that_leaves_gaps_is_left_to_the_kernels() -> None:
    with pytest.raises(NotLowered, match="gaps"):
        phases(1, 2, 1, 0, -1)
    weights, x = np.ones((3, 2, 1, 1), np.float32), np.ones((1, 3, 2, 2), np.float32)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])]
    session, refusals = session_of(nodes, {"w": weights}, [1, 3, 2, 2])
    assert "gaps" in refusals["ConvTranspose"]
    assert_near(session.run(None, {"x": x})[0], scattered(x, weights, 1, (2, 2), (1, 1), (0, 0), (3, 3)), "gaps")


def test_infinite_weights_reach_no_further_than_the_image():
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 4, 6, 6), (4, 3, 3, 3)))
    w[1, 2, 0, 2] = np.inf
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    session, _ = session_of([node, helper.make_node("Relu", ["y"], ["z"])], {"w": w}, x.shape)
    found = session.run(None, {"x": x})[0]
    with np.errstate(invalid="ignore"):
        expected = scattered(x, w, 1, (2, 2), (1, 1), (0, 0), found.shape[2:])
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.isfinite(expected).any()
    assert not np.isnan(expected).any()
