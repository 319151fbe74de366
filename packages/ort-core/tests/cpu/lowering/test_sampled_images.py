"""GridSample and RoiAlign compiled: the same as onnxruntime for every mode, any number of channels, points anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import ort_core as ort
from ort_core.errors import InvalidArgument

CHANNELS = (1, 3, 8, 17, 33)
Feeds = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def compilation_must_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")


def model_of(op_type: str, feeds: Feeds, opset: int, channels: int, **attributes: Any) -> bytes:
    """Return a model of one node behind a Neg of the images, whose channels are a known number."""
    given = []
    for name, each in feeds.items():
        dims: list[int | str] = [f"{name}{axis}" for axis in range(each.ndim)]
        if name == "x":
            dims[1] = channels
        given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), dims))
    node = helper.make_node(op_type, ["n", *list(feeds)[1:]], ["y"], **attributes)
    nodes = [helper.make_node("Neg", ["x"], ["n"]), node]
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def results(model: bytes, feeds: Feeds) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of the compiled model, and onnxruntime's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    return session.run(None, feeds)[0], oracle.run(None, feeds)[0]


@pytest.mark.sweep
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("channels", CHANNELS)
def test_points_of_grids_are_sampled_as_by_onnxruntime(channels: int, aligned: int, mode: str, padding: str) -> None:
    generator = np.random.default_rng(channels + aligned)
    for size in ((6, 9), (1, 5), (1, 1)) if mode == "linear" else ((6, 9),):
        x = generator.standard_normal((2, channels, *size)).astype(np.float32)
        grid = (1.5 * generator.standard_normal((2, 5, 7, 2))).astype(np.float32)
        grid[0, 0, :4] = [[-1, -1], [1, 1], [-1, 1], [0, 0]]
        feeds = {"x": x, "grid": grid}
        model = model_of("GridSample", feeds, 20, channels, mode=mode, padding_mode=padding, align_corners=aligned)
        found, wanted = results(model, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_points_that_are_no_numbers_or_far_out_read_nothing_outside(padding: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 5, 4, 6)).astype(np.float32)
    far = [np.nan, np.inf, -np.inf, 1e38, -1e38, 1e10, -1e10, 2.0**31, -(2.0**31)]
    grid = np.array([[a, b] for a in far for b in (0.1, *far)], np.float32).reshape(1, len(far), -1, 2)
    feeds = {"x": x, "grid": grid}
    found, _ = results(model_of("GridSample", feeds, 20, 5, padding_mode=padding), feeds)
    assert np.isfinite(found).all()


def test_what_is_not_finite_in_a_corner_stays_there() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    x[0, 0, 0, 0] = np.inf
    feeds = {"x": x, "grid": np.array([[[[5.0, 5.0], [0.5, 0.5], [-2.0, 0.0]]]], np.float32)}
    found, wanted = results(model_of("GridSample", feeds, 20, 1), feeds)
    assert np.array_equal(found, wanted)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("shift", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
@pytest.mark.parametrize("channels", CHANNELS)
def test_regions_are_pooled_as_by_onnxruntime(channels: int, ratio: int, shift: str, mode: str) -> None:
    generator = np.random.default_rng(channels + ratio)
    x = generator.standard_normal((3, channels, 9, 12)).astype(np.float32)
    corners = generator.uniform(-6, 30, (11, 2)).astype(np.float32)
    sizes = generator.uniform(0, 20, (11, 2)).astype(np.float32)
    feeds = {
        "x": x, "rois": np.concatenate([corners, corners + sizes], 1), "numbers": generator.integers(0, 3, 11),
    }  # fmt: skip
    model = model_of(
        "RoiAlign", feeds, 16, channels, mode=mode, coordinate_transformation_mode=shift, sampling_ratio=ratio,
        output_height=3, output_width=4, spatial_scale=0.5,
    )  # fmt: skip
    found, wanted = results(model, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_pixels_that_are_not_finite_count_only_in_bins_that_read_them(provider: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 9, 9)).astype(np.float32)
    x[0, :, 0, 0], x[0, 1, 5, 5], x[0, 2, 8, 0] = np.nan, np.inf, -np.inf
    rois = np.array([[2, 2, 8, 8], [0, 0, 3, 3], [-6, -6, 4, 4]], np.float32)
    feeds = {"x": x, "rois": rois, "numbers": np.zeros(3, np.int64)}
    for ratio in (0, 2):
        model = model_of("RoiAlign", feeds, 16, 3, sampling_ratio=ratio, output_height=3, output_width=3)
        (found,) = ort.InferenceSession(model, providers=[provider]).run(None, feeds)
        np.testing.assert_allclose(found, results(model, feeds)[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [-1, 3, 2**40])
def test_a_region_of_an_image_that_is_not_there_is_refused(number: int) -> None:
    feeds = {
        "x": np.zeros((3, 4, 5, 5), np.float32), "rois": np.ones((2, 4), np.float32), "numbers": np.array([0, number]),
    }  # fmt: skip
    session = ort.InferenceSession(model_of("RoiAlign", feeds, 16, 4), providers=["CPUExecutionProvider"])
    with pytest.raises(InvalidArgument, match="out of range"):
        session.run(None, feeds)


@pytest.mark.parametrize("place", range(4))
def test_regions_far_out_touch_nothing_outside_and_endless_ones_are_refused(place: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 17, 5, 6)).astype(np.float32)
    feeds = {"x": x, "rois": np.array([[1, 1, 4, 4]], np.float32), "numbers": np.zeros(1, np.int64)}
    model = model_of("RoiAlign", feeds, 16, 17, sampling_ratio=2, output_height=2, output_width=2)
    for edge in (1e30, -1e30):
        feeds["rois"][0, place] = edge
        found, wanted = results(model, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    for edge in (np.nan, np.inf, -np.inf):
        feeds["rois"][0, place] = edge
        with pytest.raises(InvalidArgument, match="must be finite"):
            ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
