"""Quantized convolutions channel by channel whose weights take nine bits around their zero points, and global means."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper
from test_groups import N, model_of

import ort_core as ort

KINDS = {kind: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in (np.uint8, np.int8, np.int32)}
ZEROS = {np.uint8: (0, 255, 100), np.int8: (-128, 127, 5)}
CHANNELS = 19


def windows(x: np.ndarray, size: tuple[int, int], strides: tuple[int, int]) -> np.ndarray:
    """Return the windows of images with their border."""
    view = np.lib.stride_tricks.sliding_window_view(x, size, (2, 3))
    return view[:, :, :: strides[0], :: strides[1]]


def convolved(
    x: np.ndarray, zero: int, weights: np.ndarray, points: np.ndarray, pad: int, strides: tuple[int, int]
) -> np.ndarray:
    """Return the sums of each channel in int64; outside of images stands the zero point."""
    wide = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kernel = weights[:, 0].astype(np.int64) - points.reshape(-1, 1, 1)
    return np.einsum("nchwij,cij->nchw", windows(wide, kernel.shape[1:], strides), kernel)


def run(nodes: list[NodeProto], x: np.ndarray, constants: dict[str, np.ndarray], kind: type) -> np.ndarray:
    inputs = {"x": (KINDS[x.dtype.type], ["N", CHANNELS, "H", "W"])}
    model: ModelProto = model_of(nodes, inputs, {"y": KINDS[kind]}, constants)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy" not in str(session.explain())
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("kinds", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)], ids=str)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("size", "strides"), [((3, 3), (1, 1)), ((5, 2), (2, 1)), ((16, 16), (1, 1))])
def test_sums_of_any_bytes_are_exact(
    kinds: tuple[type, type], place: int, size: tuple[int, int], strides: tuple[int, int]
) -> None:
    random = np.random.default_rng(place)
    low, high = np.iinfo(kinds[0]).min, np.iinfo(kinds[0]).max
    x = random.choice([low, low + 1, high], (2, CHANNELS, 17, 20)).astype(kinds[0])
    ends = np.iinfo(kinds[1])
    weights = random.choice([ends.min, ends.max, ends.max - 3], (CHANNELS, 1, *size)).astype(kinds[1])
    zero, point = ZEROS[kinds[0]][place], ZEROS[kinds[1]][place]
    constants = {"w": weights, "x_z": np.array(zero, kinds[0]), "w_z": np.array(point, kinds[1])}
    node = N("ConvInteger", ["x", "w", "x_z", "w_z"], ["y"], group=CHANNELS, pads=[1] * 4, strides=list(strides))
    sums = convolved(x, zero, weights, np.array(point), 1, strides)
    np.testing.assert_array_equal(run([node], x, constants, np.int32), sums)
    scales = {"x_s": np.array(0.5, np.float32), "w_s": np.array(2.0**-9, np.float32), "y_s": np.array(4.0, np.float32)}
    grid = ["x_s", "x_z"]
    node = N(
        "QLinearConv", ["x", *grid, "w", "w_s", "w_z", "y_s", "x_z"], ["y"], group=CHANNELS, pads=[1] * 4,
        strides=list(strides),
    )  # fmt: skip
    wanted = np.clip(np.rint(sums * 2.0**-12) + zero, low, high)  # exact: a power of two of whole numbers
    np.testing.assert_array_equal(run([node], x, {**constants, **scales}, kinds[0]), wanted)
    nodes = [
        N("DequantizeLinear", ["x", *grid], ["a"]), N("DequantizeLinear", ["w", "w_s", "w_z"], ["b"]),
        N("Conv", ["a", "b"], ["c"], group=CHANNELS, pads=[1] * 4, strides=list(strides)),
        N("QuantizeLinear", ["c", "y_s", "x_z"], ["y"]),
    ]  # fmt: skip
    np.testing.assert_array_equal(run(nodes, x, {**constants, **scales}, kinds[0]), wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.int8], ids=str)
@pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (56, 57)], ids=str)
@pytest.mark.parametrize("is_open", [False, True])
def test_global_means_are_rounded_once(kind: type, is_last: bool, size: tuple[int, int], is_open: bool) -> None:
    random = np.random.default_rng(size[0])
    limits = np.iinfo(kind)
    x = random.integers(limits.min, limits.max + 1, (3, *size, CHANNELS) if is_last else (3, CHANNELS, *size))
    axes, zero, out = ((1, 2) if is_last else (2, 3)), ZEROS[kind][2], ZEROS[kind][0]
    constants = {
        "s": np.array(0.03, np.float32), "z": np.array(zero, kind), "t": np.array(0.011, np.float32),
        "u": np.array(out, kind),
    }  # fmt: skip
    node = helper.make_node(
        "QLinearGlobalAveragePool", ["x", "s", "z", "t", "u"], ["y"], domain="com.microsoft", channels_last=int(is_last)
    )
    shape: list[int | str] = list(x.shape)
    if is_open:
        shape = ["N", "H", "W", CHANNELS] if is_last else ["N", CHANNELS, "H", "W"]
    model = model_of([node], {"x": (KINDS[kind], shape)}, {"y": KINDS[kind]}, constants)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "numpy" not in str(session.explain())
    found = session.run(None, {"x": x.astype(kind)})[0]
    count = size[0] * size[1]
    total = x.sum(axis=axes, keepdims=True, dtype=np.int64) - zero * count
    mean = (total * (np.float64(constants["s"]) / count)).astype(np.float32)
    wanted = np.clip(np.rint(mean / constants["t"]) + out, limits.min, limits.max)
    np.testing.assert_array_equal(found, wanted)
