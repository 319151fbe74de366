"""onnxruntime's quantized convolutions of channels-last images are compiled, and equal its own."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_groups import model_of
from test_quantized_groups import check, grid, images, integers, weights

U8, I8 = TensorProto.UINT8, TensorProto.INT8


@pytest.mark.parametrize("bits", [np.uint8, np.int8], ids=lambda d: d.__name__)
@pytest.mark.parametrize(("group", "kernel"), [(1, (3, 3)), (8, (3, 3)), (1, (1, 1)), (2, (3, 1)), (1, (5,))])
@pytest.mark.parametrize("is_last", [1, 0])
@pytest.mark.parametrize("is_open", [False, True])
def test_convolutions(bits, group: int, kernel: tuple[int, ...], is_last: int, *, is_open: bool) -> None:
    channels, space = 8, (9, 14)[-len(kernel) :]
    constants = {
        **grid("x", 0.03, 5, bits), "w": weights(channels, channels // group, *kernel),
        "w_s": np.random.default_rng(1).uniform(1e-3, 0.01, channels).astype(np.float32),
        "w_z": np.zeros(channels, np.int8), **grid("y", 0.2, 3, bits),
        "b": np.random.default_rng(2).integers(-900, 900, channels).astype(np.int32),
    }  # fmt: skip
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z", "b"]
    node = helper.make_node(
        "QLinearConv", names, ["y"], domain="com.microsoft", channels_last=is_last, group=group,
        strides=[2] * len(space), pads=[1] * 2 * len(space),
    )  # fmt: skip
    shape = (2, *space, channels) if is_last else (2, channels, *space)
    opened = ["N", *(f"s{axis}" for axis in range(len(space)))]
    dims = [*opened, channels] if is_last else [opened[0], channels, *opened[1:]]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(bits))
    model = model_of([node], {"x": (kind, dims if is_open else list(shape))}, {"y": kind}, constants)
    check(model, {"x": images(*shape, dtype=bits)}, "approximate")


def test_neighbors_that_stay_channels_last() -> None:
    constants = {
        "s": np.float32(0.05), "z": np.uint8(7), "w": weights(16, 6, 3, 3), "v": weights(5, 16, 1, 1),
        "ws": np.float32(0.01), "wz": np.int8(0),
    }  # fmt: skip
    made = [
        helper.make_node("QLinearConv", [x, "s", "z", w, "ws", "wz", "s", "z"], [y], domain="com.microsoft",
                         channels_last=1, pads=[1, 1, 1, 1] if w == "w" else [0, 0, 0, 0])
        for x, w, y in (("x", "w", "h"), ("h", "v", "y"))
    ]  # fmt: skip
    model = model_of(made, {"x": (U8, ["N", "H", "W", 6])}, {"y": U8}, constants)
    check(model, {"x": integers(2, 11, 7, 6, dtype=np.uint8)}, "approximate")
