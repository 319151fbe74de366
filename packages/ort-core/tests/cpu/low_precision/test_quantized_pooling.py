"""MaxPool of what a quantized convolution makes: exact, and without a copy of the images for their border."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from test_groups import FLOAT, N, model_of

import ort_core as ort
from ort_core.cpu.lowering.rules.quantized import integer_pooling

INT8 = TensorProto.INT8
RANDOM = np.random.default_rng(13)
INPUTS, OUTPUTS = 20, 24
SHARE = 2.0**-7  # of a sum, in steps of the grid


def pooled_convolution(
    dtype: type, zero: int, attributes: dict[str, Sequence[int]], *, is_shared: bool = False
) -> tuple[ModelProto, np.ndarray]:
    """Return DequantizeLinear, Conv, QuantizeLinear, DequantizeLinear, MaxPool and QuantizeLinear on one grid."""
    weights = RANDOM.integers(-60, 61, (OUTPUTS, INPUTS, 1, 1)).astype(np.int8)
    constants = {
        "w": weights, "w_s": np.array(SHARE, np.float32), "w_z": np.array(0, np.int8), "s": np.array(0.5, np.float32),
        "z": np.array(zero, dtype),
    }  # fmt: skip
    nodes = [
        N("DequantizeLinear", ["x", "s", "z"], ["r"]), N("DequantizeLinear", ["w", "w_s", "w_z"], ["v"]),
        N("Conv", ["r", "v"], ["c"]), N("QuantizeLinear", ["c", "s", "z"], ["q"]),
        N("DequantizeLinear", ["q", "s", "z"], ["d"]), N("MaxPool", ["d"], ["p"], **attributes),
        N("QuantizeLinear", ["p", "s", "z"], ["y"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    outputs = {"y": kind}
    if is_shared:
        nodes.append(N("Relu", ["d"], ["e"]))
        outputs["e"] = FLOAT
    return model_of(nodes, {"x": (kind, ["N", INPUTS, "H", "W"])}, outputs, constants), weights


def expected(x: np.ndarray, weights: np.ndarray, zero: int, attributes: dict[str, Sequence[int]]) -> np.ndarray:
    """Return the largest integers of windows, of sums that are rounded once."""
    limits = np.iinfo(x.dtype)
    sums = np.einsum("nchw,oc->nohw", x.astype(np.int64) - zero, weights[:, :, 0, 0].astype(np.int64))
    levels = np.clip(np.rint(sums * SHARE) + zero, limits.min, limits.max)
    top, left, bottom, right = attributes["pads"]
    levels = np.pad(levels, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=limits.min)
    (rows, columns), (down, along) = attributes["kernel_shape"], attributes.get("strides", (1, 1))
    apart = attributes.get("dilations", (1, 1))
    view = np.lib.stride_tricks.sliding_window_view(
        levels, ((rows - 1) * apart[0] + 1, (columns - 1) * apart[1] + 1), (2, 3)
    )
    return view[:, :, ::down, ::along, :: apart[0], :: apart[1]].max(axis=(4, 5))


def run(model: ModelProto, x: np.ndarray, threads: int) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Images that were copied into larger ones."""
    found: list[object] = []
    copy = integer_pooling.emit_byte_border

    def noted(*arguments: object) -> object:
        found.append(arguments)
        return copy(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(integer_pooling, "emit_byte_border", noted)
    return found


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 7), (np.uint8, 255), (np.int8, -9), (np.int8, 127)])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
        {"kernel_shape": (2, 4), "pads": (1, 0, 0, 3)},
        {"kernel_shape": (3, 2), "strides": (1, 3), "dilations": (2, 3), "pads": (2, 1, 3, 0)},
        {"kernel_shape": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0)},
    ],
    ids=["3x3", "one side", "dilated", "no border"],
)
def test_largest_integers_of_a_convolution_are_read_inside_their_border(
    attributes: dict[str, Sequence[int]], dtype: type, zero: int, threads: int, copies: list[object]
) -> None:
    model, weights = pooled_convolution(dtype, zero, attributes)
    limits = np.iinfo(dtype)
    for size in ((5, 6), (17, 18)):
        x = RANDOM.integers(limits.min, limits.max + 1, (2, INPUTS, *size)).astype(dtype)
        np.testing.assert_array_equal(run(model, x, threads), expected(x, weights, zero, attributes))
    assert not copies


def test_images_that_others_read_are_copied_for_their_border(copies: list[object]) -> None:
    attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    model, weights = pooled_convolution(np.uint8, 100, attributes, is_shared=True)
    x = RANDOM.integers(0, 256, (1, INPUTS, 9, 8)).astype(np.uint8)
    np.testing.assert_array_equal(run(model, x, 2), expected(x, weights, 100, attributes))
    assert copies


@pytest.mark.parametrize("scale", [0.05, -0.05])
def test_the_largest_number_is_the_least_integer_where_the_scale_is_below_zero(scale: float) -> None:
    constants = {"s": np.array(scale, np.float32), "z": np.array(9, np.int8)}
    nodes = [
        N("DequantizeLinear", ["x", "s", "z"], ["d"]), N("MaxPool", ["d"], ["p"], kernel_shape=(2, 2)),
        N("QuantizeLinear", ["p", "s", "z"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": (INT8, ["N", 3, "H", "W"])}, {"y": INT8}, constants)
    x = RANDOM.integers(-128, 128, (2, 3, 6, 5)).astype(np.int8)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3))
    right = windows.max((4, 5)) if scale > 0 else windows.min((4, 5))
    np.testing.assert_array_equal(run(model, x, 1), right)
