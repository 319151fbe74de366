"""Convolutions whose weights are computed in the graph, and automatic pads of sizes that only a run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_groups import agrees, model_of

N = helper.make_node
FLOAT = TensorProto.FLOAT


pytestmark = pytest.mark.usefixtures("nothing_runs_by_numpy")


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("images", "weights", "attributes"),
    [
        ((2, 6, 9, 11), (4, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 6, 9, 11), (6, 2, 3, 5), {"group": 3, "strides": [2, 1], "pads": [0, 2, 1, 2]}),
        ((2, 5, 8, 8), (5, 1, 3, 3), {"group": 5, "dilations": [2, 2]}),
        ((1, 4, 23), (8, 4, 4), {"dilations": [3], "pads": [9, 0]}),
        ((2, 3, 5, 6, 7), (4, 3, 2, 3, 3), {"strides": [1, 2, 2], "pads": [1, 0, 1, 0, 1, 1]}),
        ((2, 7, 4, 4), (3, 7, 1, 1), {}),
        ((1, 2, 6, 7), (3, 2, 3, 4), {"auto_pad": "SAME_LOWER"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])
def test_convolution_takes_weights_from_the_graph(
    images: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], has_bias: bool
) -> None:
    inputs = {"x": (FLOAT, [f"x{n}" for n in range(len(images))]), "w": (FLOAT, list(weights))}
    inputs |= {"b": (FLOAT, list(weights[:1]))} if has_bias else {}
    model = model_of([N("Conv", list(inputs), ["c"], **attributes), N("Relu", ["c"], ["y"])], inputs, {"y": FLOAT})
    bias = {"b": numbers(3, weights[0])} if has_bias else {}
    for batch in (images[0], 3):
        agrees(model, {"x": numbers(1, batch, *images[1:]), "w": numbers(2, *weights), **bias})


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator", ["Conv", "MaxPool"])
def test_automatic_pads_need_no_size_where_windows_step_by_one(automatic: str, operator: str) -> None:
    more = {"kernel_shape": [4, 3], "auto_pad": automatic, "dilations": [1, 2]}
    names = ["x", "w"] if operator == "Conv" else ["x"]
    constants = {"w": numbers(2, 4, 2, 4, 3)} if operator == "Conv" else {}
    more |= {"group": 2} if operator == "Conv" else {}
    model = model_of([N(operator, names, ["y"], **more)], {"x": (FLOAT, ["N", 4, "H", "W"])}, {"y": FLOAT}, constants)
    agrees(model, {"x": numbers(1, 2, 4, 9, 12)}, {"x": numbers(1, 1, 4, 5, 8)})
