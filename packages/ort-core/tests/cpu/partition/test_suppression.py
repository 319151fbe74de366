"""NonMaxSuppression compiled: the boxes, in the order, of the reference kernel."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_groups import agrees, model_of

import ort_core as ort

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


@pytest.mark.unguarded
@pytest.mark.parametrize("center", [False, True], ids=["corners", "centers"])
@pytest.mark.parametrize("limits", range(4))
def test_few_boxes_under_constant_limits_are_a_direct_call(limits: int, center: bool) -> None:
    constants = {
        "most": np.array([4]),
        "overlap": np.array([0.3], np.float32),
        "threshold": np.array([0.2], np.float32),
    }
    names = ["boxes", "scores", *list(constants)[:limits]]
    node = helper.make_node("NonMaxSuppression", names, ["kept"], center_point_box=int(center))
    model = model_of([node], {name: INPUTS[name] for name in names[:2]}, {"kept": INT64})
    model.graph.initializer.extend(numpy_helper.from_array(constants[name], name) for name in names[2:])
    session = ort.InferenceSession(model.SerializeToString())
    truth = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    random = np.random.default_rng(limits)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for turn, (batches, classes, count) in enumerate([(1, 1, 20)] * 5 + [(2, 3, 7)] * 5 + [(1, 1, 0), (1, 1, 20)]):
        scores = random.random((batches, classes, count)).round(2).astype(np.float32)
        feeds = {"boxes": boxes(turn, batches, count, center=center), "scores": scores * (turn != 4)}
        (found,), (expected,) = session.run(None, feeds), truth.run(None, feeds)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(found, expected)
        kept.append((found, expected.copy()))
    assert all(np.array_equal(found, expected) for found, expected in kept)  # no run writes to an older result
    feeds = {"boxes": boxes(9, 1, 20, center=center), "scores": np.ones((1, 1, 20), np.float32)}
    assert (session._loaded.direct.call(feeds, None) is not None) == (limits > 0)  # without a limit none is kept


def test_suppression_with_a_wrong_limit_fails_as_the_reference_does() -> None:
    names = list(INPUTS)[:4]
    node = helper.make_node("NonMaxSuppression", names, ["kept"])
    model = model_of([node], {name: INPUTS[name] for name in names}, {"kept": INT64})
    feeds = {"boxes": boxes(0, 1, 5, center=False), "scores": np.ones((1, 1, 5), np.float32), "most": np.array([3])}
    (result,) = agrees(model, {**feeds, "overlap": np.array([1.5], np.float32)})
    assert isinstance(result, str), "an overlap above 1 is an error"
