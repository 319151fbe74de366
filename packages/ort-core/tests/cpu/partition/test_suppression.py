"""NonMaxSuppression compiled: the boxes, in the order, of the reference kernel."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_groups import agrees, model_of

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
INPUTS = {
    "boxes": (FLOAT, ["N", "B", 4]), "scores": (FLOAT, ["N", "C", "B"]), "most": (INT64, [1]), "overlap": (FLOAT, [1]),
    "threshold": (FLOAT, [1]),
}  # fmt: skip


def boxes(seed: int, batches: int, count: int, *, center: bool) -> np.ndarray:
    random = np.random.default_rng(seed)
    corner, size = random.random((batches, count, 2)), random.random((batches, count, 2)) * 0.4
    pair = (corner, size) if center else (corner, corner + size * random.choice([-1, 1], (batches, count, 2)))
    return np.concatenate(pair, axis=2).astype(np.float32)


@pytest.mark.parametrize("center", [False, True], ids=["corners", "centers"])
@pytest.mark.parametrize("seed", range(6))
def test_suppression_keeps_what_the_reference_keeps(seed: int, center: bool) -> None:
    names = list(INPUTS)[: 5 - seed % 3]
    node = helper.make_node("NonMaxSuppression", names, ["kept"], center_point_box=int(center))
    model = model_of([node], {name: INPUTS[name] for name in names}, {"kept": INT64})
    random = np.random.default_rng(seed)
    feeds = []
    for batches, classes, count, most in (
        (1, 1, 1, 1),
        (2, 3, 40, 5),
        (1, 2, 300, 1 << 40),
        (1, 1, 0, 3),
        (2, 2, 9, 0),
    ):
        scores = random.random((batches, classes, count)).round(2)  # rounded: some are equal
        scores[scores < 0.1] = np.nan
        given = {
            "boxes": boxes(seed, batches, count, center=center), "scores": scores.astype(np.float32),
            "most": np.array([most]), "overlap": np.array([0.3], np.float32), "threshold": np.array([0.2], np.float32),
        }  # fmt: skip
        feeds.append({name: given[name] for name in names})
    agrees(model, *feeds)


def test_suppression_with_a_wrong_limit_fails_as_the_reference_does() -> None:
    names = list(INPUTS)[:4]
    node = helper.make_node("NonMaxSuppression", names, ["kept"])
    model = model_of([node], {name: INPUTS[name] for name in names}, {"kept": INT64})
    feeds = {"boxes": boxes(0, 1, 5, center=False), "scores": np.ones((1, 1, 5), np.float32), "most": np.array([3])}
    (result,) = agrees(model, {**feeds, "overlap": np.array([1.5], np.float32)})
    assert isinstance(result, str), "an overlap above 1 is an error"
