"""Pooling against onnxruntime over many geometries, and against direct formulas."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.images.pooling import (
    average_pool,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    max_unpool,
)
from ort_core.kernels.reference.images.regions import max_roi_pool, roi_align

GEOMETRIES = [
    ((2, 3, 9), {"kernel_shape": (3,), "strides": (2,), "pads": (1, 0)}),
    ((1, 2, 7, 8), {"kernel_shape": (3, 2), "strides": (2, 3), "pads": (1, 1, 2, 0), "ceil_mode": 1}),
    ((1, 2, 9, 9), {"kernel_shape": (2, 3), "dilations": (2, 3), "pads": (1, 2, 1, 2)}),
    ((1, 2, 5, 6), {"kernel_shape": (3, 3), "auto_pad": "SAME_LOWER", "strides": (2, 2)}),
    ((1, 1, 5, 4, 6), {"kernel_shape": (2, 3, 2), "strides": (2, 1, 2), "ceil_mode": 1}),
    ((1, 1, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1}),
]


def context(*present):
    return KernelContext("MaxPool", "", 22, "", present, (None,) * len(present), {}, Unguarded())


@pytest.mark.parametrize(("shape", "attributes"), GEOMETRIES)
@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_finds_the_values_and_places_that_onnxruntime_finds(shape, attributes, storage_order, by_onnxruntime):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    values, places = by_onnxruntime("MaxPool", [x], 12, 2, storage_order=storage_order, **attributes)
    y, indices = max_pool(x, storage_order=storage_order, ctx=context(True, True), **attributes)
    np.testing.assert_array_equal(y, values)
    np.testing.assert_array_equal(indices, places)
    np.testing.assert_array_equal(max_pool(x, **attributes)[0], values)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, ml_dtypes.bfloat16, np.float64])
def test_max_pool_keeps_the_type(dtype):
    x = np.array([[[3, 1, 4, 1, 5]]]).astype(dtype)
    y, _ = max_pool(x, kernel_shape=(2,), pads=(1, 1), strides=(2,))
    assert y.dtype == dtype
    assert y.astype(int).tolist() == [[[3, 4, 5]]]


def test_max_pool_carries_a_nan_to_every_window_that_holds_it():
    x = np.array([[[1, np.nan, 2, 3]]], np.float32)
    for y, _ in (max_pool(x, kernel_shape=(2,)), max_pool(x, kernel_shape=(2,), ctx=context(True, True))):
        assert np.isnan(y).tolist() == [[[True, True, False]]]


@pytest.mark.parametrize(("shape", "attributes"), GEOMETRIES)
@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool_agrees_with_onnxruntime(shape, attributes, count_include_pad, by_onnxruntime):
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    expected = by_onnxruntime("AveragePool", [x], 19, count_include_pad=count_include_pad, **attributes)[0]
    y = average_pool(x, count_include_pad=count_include_pad, **attributes)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "attributes"), GEOMETRIES)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_agrees_with_onnxruntime(shape, attributes, p, by_onnxruntime):
    x = np.random.default_rng(2).standard_normal(shape, np.float32)
    expected = by_onnxruntime("LpPool", [x], 18, p=p, **attributes)[0]
    np.testing.assert_allclose(lp_pool(x, p=p, **attributes), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_global_pooling_reduces_all_spatial_axes(dtype):
    x = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(dtype)
    wide = x.astype(np.float64)
    tolerance = {"rtol": 2 * float(ml_dtypes.finfo(dtype).eps), "atol": float(ml_dtypes.finfo(dtype).eps)}
    for y, expected in (
        (global_average_pool(x), wide.mean(axis=(2, 3), keepdims=True)),
        (global_max_pool(x), wide.max(axis=(2, 3), keepdims=True)),
        (global_lp_pool(x, p=3), (abs(wide) ** 3).sum(axis=(2, 3), keepdims=True) ** (1 / 3)),
    ):
        assert y.dtype == dtype
        np.testing.assert_allclose(y.astype(np.float64), expected, **tolerance)


def test_max_unpool_undoes_max_pool_where_the_maxima_were():
    x = np.random.default_rng(4).standard_normal((2, 2, 6, 6))
    y, indices = max_pool(x, kernel_shape=(2, 2), strides=(2, 2), ctx=context(True, True))
    back = max_unpool(y, indices, kernel_shape=(2, 2), strides=(2, 2))
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    np.testing.assert_array_equal(np.count_nonzero(back), y.size)


def test_max_unpool_restores_a_larger_input_of_known_shape():
    x = np.random.default_rng(5).random((1, 1, 5, 5)) + 1
    y, indices = max_pool(x, kernel_shape=(2, 2), strides=(2, 2), ctx=context(True, True))
    back = max_unpool(y, indices, np.array([1, 1, 5, 5]), kernel_shape=(2, 2), strides=(2, 2))
    np.testing.assert_array_equal(back, np.where(back > 0, x, 0))
    assert np.count_nonzero(back) == 4


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_roi_align_agrees_with_onnxruntime(mode, sampling_ratio, transformation, by_onnxruntime):
    generator = np.random.default_rng(6)
    x = generator.standard_normal((2, 3, 8, 9), np.float32)
    rois = np.array([[0, 0, 15, 15], [3, 5, 30, 12], [-4, 2, 8, 40], [5, 5, 5, 5]], np.float32)
    batch = np.array([0, 1, 1, 0], np.int64)
    attributes = {
        "mode": mode,
        "sampling_ratio": sampling_ratio,
        "coordinate_transformation_mode": transformation,
        "output_height": 3,
        "output_width": 2,
        "spatial_scale": 0.5,
    }
    expected = by_onnxruntime("RoiAlign", [x, rois, batch], 16, **attributes)[0]
    np.testing.assert_allclose(roi_align(x, rois, batch, **attributes), expected, rtol=1e-4, atol=1e-5)


def test_max_roi_pool_agrees_with_onnxruntime(by_onnxruntime):
    x = np.random.default_rng(7).standard_normal((2, 2, 8, 9), np.float32)
    rois = np.array([[0, 0, 0, 6, 6], [1, 2.5, 1, 20, 3], [1, 7, 7, 3, 2]], np.float32)
    attributes = {"pooled_shape": (3, 2), "spatial_scale": 0.7}
    expected = by_onnxruntime("MaxRoiPool", [x, rois], 7, **attributes)[0]
    np.testing.assert_array_equal(max_roi_pool(x, rois, **attributes), expected)


def test_pooling_refuses_padding_as_wide_as_the_kernel():
    with pytest.raises(InvalidArgument, match="must be smaller than"):
        average_pool(np.zeros((1, 1, 4), np.float32), kernel_shape=(2,), pads=(2, 0))


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_windows_that_find_no_place_are_empty_until_two_strides_are_missing(operator, provider, ceil_mode):
    def run(window):
        node = f"y = {operator}<kernel_shape=[1, {window}], strides=[1, 3], ceil_mode={ceil_mode}>(x)"
        proto = parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 22]> g (float[N, 2, 5, 2] x) => (float[a, b, c, d] y) {{ {node} }}'
        )
        session = ort.InferenceSession(proto.SerializeToString(), providers=[provider])
        return session.run(None, {"x": np.ones((1, 2, 5, 2), np.float32)})[0].shape

    assert run(5) == run(7) == (1, 2, 5, 0)
    with pytest.raises(InvalidArgument, match="does not fit into axis 1 of padded size 2"):
        run(8)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_window_that_lacks_less_than_a_stride_finds_one_place_as_in_onnxruntime(operator, provider, is_open):
    height = "h" if is_open else "2"
    node = f"y = {operator}<kernel_shape=[5, 2], strides=[4, 1], pads=[0, 0, 1, 0]>(a)"
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 22]> g (float[N, 2, {height}, 3] x) => (float[a, b, c, d] z)'
        f" {{ a = Abs(x) {node} z = Neg(y) }}"
    ).SerializeToString()
    ours = ort.InferenceSession(proto, providers=[provider])
    theirs = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    for size in (9, 2, 3, 1) if is_open else (2,):
        x = np.random.default_rng(size).standard_normal((1, 2, size, 3)).astype(np.float32)
        found, expected = (session.run(None, {"x": x})[0] for session in (ours, theirs))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5)
