"""Resizing and grid sampling against onnxruntime, over modes, transformations and types."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import AllocationLimitExceeded, InvalidArgument
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.images.grid_sample import affine_grid, grid_sample
from ort_core.kernels.reference.images.resize import resize, resize_10, upsample_1, upsample_7
from ort_core.ops.resized_axes import scaled_size

TRANSFORMATIONS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]


def context(opset):
    return KernelContext("Resize", "", opset, "", (True,), (None,), {}, Unguarded())


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("sizes", [(1, 1, 7, 11), (1, 1, 3, 4), (1, 1, 10, 2), (1, 1, 1, 1)])
def test_resize_to_sizes_agrees_with_onnxruntime(mode, transformation, sizes, by_onnxruntime):
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 6), np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": transformation}
    target = np.array(sizes, np.int64)
    expected = by_onnxruntime("Resize", [x, None, None, target], 19, **attributes)[0]
    np.testing.assert_allclose(resize(x, None, None, target, **attributes), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize("scales", [(1, 1, 0.6, 0.3), (1, 1, 2, 0.5), (1, 1, 1.3, 2.6)])
def test_resize_with_antialias_agrees_with_onnxruntime(mode, exclude_outside, scales, by_onnxruntime):
    x = np.random.default_rng(1).standard_normal((1, 2, 9, 10), np.float32)
    attributes = {"mode": mode, "antialias": 1, "exclude_outside": exclude_outside, "cubic_coeff_a": -0.5}
    given = np.array(scales, np.float32)
    expected = by_onnxruntime("Resize", [x, None, given], 19, **attributes)[0]
    np.testing.assert_allclose(resize(x, None, given, **attributes), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("nearest_mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_rounds_to_the_nearest_as_named(nearest_mode):
    x = np.arange(4.0).reshape(1, 4)
    y = resize(x, None, np.array([1, 0.5], np.float32), nearest_mode=nearest_mode)
    first = 1 if nearest_mode in ("round_prefer_ceil", "ceil") else 0
    assert y.tolist() == [[first, first + 2]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float16, ml_dtypes.bfloat16, np.float64, bool])
def test_resize_keeps_the_type(dtype):
    x = np.array([[0, 1], [1, 0]]).astype(dtype)
    for mode in ("nearest", "linear"):
        assert resize(x, None, np.array([2, 3], np.float32), mode=mode).dtype == dtype


def test_resize_repeats_strings():
    x = np.array([["a", "b"]], object)
    assert resize(x, None, np.array([1, 2], np.float32)).tolist() == [["a", "a", "b", "b"]]


def test_resize_speaks_of_named_axes_and_keeps_the_aspect_ratio():
    x = np.random.default_rng(2).random((2, 3, 4, 8))
    sizes = np.array([6, 6])
    assert resize(x, None, None, sizes, axes=(2, 3)).shape == (2, 3, 6, 6)
    assert resize(x, None, None, sizes, axes=(-1, -2), keep_aspect_ratio_policy="not_larger").shape == (2, 3, 3, 6)
    assert resize(x, None, None, sizes, axes=(2, 3), keep_aspect_ratio_policy="not_smaller").shape == (2, 3, 6, 12)


def test_resize_crops_a_region_and_fills_what_lies_outside():
    x = np.arange(5.0).reshape(1, 5)
    region = np.array([0, 0.25, 1, 1.25])
    y = resize(
        x,
        region,
        None,
        np.array([1, 5]),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
    )
    assert y.tolist() == [[1, 2, 3, 4, 9]]


def test_filters_that_shrink_align_corners_by_the_uncut_size_since_19():
    x = np.array([[1.0, 2, 3, 4]])
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    scales = np.array([1, 0.6], np.float32)
    old = resize(x, None, scales, ctx=context(18), **attributes)
    new = resize(x, None, scales, ctx=context(19), **attributes)
    np.testing.assert_allclose(old, [[1, 4]])
    np.testing.assert_allclose(new, [[1, 1 + 3 / 1.4]], rtol=1e-6)


@pytest.mark.parametrize(("mode", "scale"), [("linear", 1.5), ("cubic", 1.5), ("nearest", 1.5), ("nearest", 0.7)])
def test_corners_are_those_of_the_result_in_all_else(mode, scale, by_onnxruntime):
    x = np.random.default_rng(5).standard_normal((1, 1, 5, 7), np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    scales = np.array([1, 1, scale, scale], np.float32)
    expected = by_onnxruntime("Resize", [x, None, scales], 19, **attributes)[0]
    np.testing.assert_allclose(resize(x, None, scales, **attributes), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("nearest_mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_ties_fall_to_the_side_that_onnxruntime_takes(transformation, nearest_mode, by_onnxruntime):
    attributes = {"coordinate_transformation_mode": transformation, "nearest_mode": nearest_mode}
    for size, made in ((14, 19), (39, 24), (13, 14), (10, 7), (2, 3)):
        x, sizes = np.arange(size, dtype=np.float32), np.array([made])
        expected = by_onnxruntime("Resize", [x, None, None, sizes], 19, **attributes)[0]
        assert resize(x, None, None, sizes, **attributes).tolist() == expected.tolist(), (size, made)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("shape", [(5, 9), (2, 3, 4, 7), (3, 4, 6), (1, 2, 3, 4, 5)])
def test_linear_mixtures_of_integers_are_cut_where_onnxruntime_cuts_them(shape, transformation, dtype, by_onnxruntime):
    low = 0 if dtype is np.uint8 else -100
    x = np.random.default_rng(6).integers(low, 120, shape).astype(dtype)
    spatial = 2 if len(shape) in (2, 4) else 3
    scales = np.array([1.0] * (len(shape) - spatial) + [1.0, 1.5, 0.6][-spatial:], np.float32)
    attributes = {"mode": "linear", "coordinate_transformation_mode": transformation}
    if transformation == "align_corners":
        scales = np.where(scales < 1, 2.5, scales).astype(np.float32)
    expected = by_onnxruntime("Resize", [x, None, scales], 19, **attributes)[0]
    np.testing.assert_array_equal(resize(x, None, scales, **attributes), expected)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_a_result_of_the_inputs_sizes_is_the_input(mode, antialias, by_onnxruntime):
    x = np.random.default_rng(7).standard_normal((1, 1, 3, 5), np.float32)
    scales = np.array([1, 1, 1.3, 1.1], np.float32)
    attributes = {"mode": mode} if mode == "nearest" else {"mode": mode, "antialias": antialias}
    np.testing.assert_array_equal(resize(x, None, scales, **attributes), x)
    np.testing.assert_array_equal(by_onnxruntime("Resize", [x, None, scales], 19, **attributes)[0], x)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2.0, 1.5, 0.6])
def test_first_versions_agree_with_onnxruntime(mode, scale, by_onnxruntime):
    x = np.random.default_rng(3).standard_normal((1, 1, 4, 5), np.float32)
    scales = (1.0, 1.0, scale, scale)
    expected = by_onnxruntime("Resize", [x, np.array(scales, np.float32)], 10, mode=mode)[0]
    np.testing.assert_allclose(resize_10(x, np.array(scales, np.float32), mode=mode), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(upsample_7(x, scales=scales, mode=mode), expected, rtol=1e-5, atol=1e-6)
    old = "bilinear" if mode == "linear" else mode
    y = upsample_1(x, height_scale=scale, width_scale=scale, mode=old)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("size", "scale"), [(10, 0.7), (20, 0.35), (5, 0.6), (30, 0.1), (9, 1 / 3), (7, 1.9)])
def test_a_scale_makes_as_many_outputs_as_in_onnxruntime(size, scale, by_onnxruntime):
    x, scales = np.arange(size, dtype=np.float32).reshape(1, 1, size, 1), np.array([1, 1, scale, 1], np.float32)
    expected = by_onnxruntime("Resize", [x, None, scales], 19, mode="nearest")[0]
    assert scaled_size(size, scale) == expected.shape[2]
    np.testing.assert_array_equal(resize(x, None, scales), expected)


def test_a_scale_beyond_all_sizes_is_refused():
    with pytest.raises(InvalidArgument, match="cannot make 10 times"):
        resize(np.zeros((10,), np.float32), None, np.array([3e38], np.float32))


class SmallMemory(Unguarded):
    def check_allocation(self, nbytes, what):
        if nbytes > 1000:
            raise AllocationLimitExceeded(f"{what}: {nbytes} bytes")


def test_resize_asks_before_it_makes_a_large_output():
    ctx = KernelContext("Resize", "", 19, "", (True,), (None,), {}, SmallMemory())
    with pytest.raises(AllocationLimitExceeded, match="output of Resize with shape"):
        resize(np.zeros((1, 1), np.float32), None, np.array([1e6, 1e6], np.float32), ctx=ctx)


def test_resize_refuses_scales_that_do_not_fit():
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(InvalidArgument, match=r"Number of elements in scales should be equal to number of axes"):
        resize(x, None, np.array([1], np.float32))
    with pytest.raises(InvalidArgument, match="either scales or sizes"):
        resize(x)
    with pytest.raises(InvalidArgument, match="duplicate axis 1"):
        resize(x, None, np.array([1, 1], np.float32), axes=(1, -1))


@pytest.mark.parametrize(
    ("mode", "padding_mode", "align_corners"),
    list(itertools.product(["linear", "nearest", "cubic"], ["zeros", "border", "reflection"], [0, 1])),
)
@pytest.mark.parametrize("rank", [2, 3])
def test_grid_sample_agrees_with_onnxruntime(mode, padding_mode, align_corners, rank, by_onnxruntime):
    if rank == 3 and mode == "cubic":
        mode = "linear"  # onnxruntime has no cubic sampling of volumes
    generator = np.random.default_rng(4)
    x = generator.standard_normal((2, 3, 4, 5, 6)[: rank + 2]).astype(np.float32)
    grid = generator.uniform(-2.5, 2.5, (2, *(3, 4, 2)[:rank], rank)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    expected = by_onnxruntime("GridSample", [x, grid], 20, **attributes)[0]
    np.testing.assert_allclose(grid_sample(x, grid, **attributes), expected, rtol=1e-4, atol=1e-5)


def test_cubic_grid_sample_of_a_volume_at_its_own_points_returns_it():
    x = np.random.default_rng(5).standard_normal((1, 2, 3, 4, 5))
    theta = np.eye(3, 4)[None]
    grid = affine_grid(theta, np.array(x.shape), align_corners=1)
    np.testing.assert_allclose(grid_sample(x, grid, mode="cubic", align_corners=1), x, atol=1e-12)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (2, 1, 2, 3, 4)])
def test_affine_grid_agrees_with_onnxruntime(align_corners, size, by_onnxruntime):
    rank = len(size) - 2
    theta = np.random.default_rng(6).standard_normal((2, rank, rank + 1)).astype(np.float32)
    expected = by_onnxruntime("AffineGrid", [theta, np.array(size)], 20, align_corners=align_corners)[0]
    y = affine_grid(theta, np.array(size), align_corners=align_corners)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 1, 3, 3), (1, 0, 3, 3)])
def test_grid_sample_of_nothing_is_empty(shape):
    grid = np.zeros((shape[0], 2, 2, 2), np.float32)
    assert grid_sample(np.zeros(shape, np.float32), grid).shape == (*shape[:2], 2, 2)
