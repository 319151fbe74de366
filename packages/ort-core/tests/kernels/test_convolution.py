"""Convolutions against their definition, in float64, and against each other."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.windows import im2col, slide
from ort_core.kernels.reference.images.convolution import causal_conv_with_state, col2im_kernel, conv, conv_transpose
from ort_core.kernels.reference.images.deformable import deform_conv


def by_definition(x, w, b, group, strides, dilations, pads):
    x, w = x.astype(np.float64), w.astype(np.float64)
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    out = [(size - r) // s + 1 for size, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    inner = w.shape[1]
    for m, *o in itertools.product(range(w.shape[0]), *map(range, out)):
        window = tuple(slice(i * s, i * s + r, d) for i, s, r, d in zip(o, strides, reach, dilations, strict=True))
        first = m // (w.shape[0] // group) * inner
        part = x[(slice(None), slice(first, first + inner), *window)]
        y[(slice(None), m, *o)] = (part * w[m]).reshape(len(x), -1).sum(axis=1)
    return y if b is None else y + b.astype(np.float64).reshape(-1, *[1] * rank)


CASES = {
    "plain 1-D": ((2, 3, 9), (4, 3, 3), 1, (1,), (1,), (0, 0)),
    "strided, padded, dilated 2-D": ((2, 4, 9, 8), (6, 4, 3, 2), 1, (2, 1), (1, 2), (1, 0, 2, 1)),
    "grouped": ((2, 6, 7, 7), (4, 3, 3, 3), 2, (1, 2), (1, 1), (1, 1, 1, 1)),
    "depthwise": ((2, 5, 7, 6), (5, 1, 3, 3), 5, (2, 1), (1, 2), (1, 1, 1, 1)),
    "depthwise with multiplier": ((1, 3, 7), (6, 1, 3), 3, (1,), (1,), (1, 1)),
    "pointwise": ((2, 4, 5, 5), (3, 4, 1, 1), 1, (1, 1), (1, 1), (0, 0, 0, 0)),
    "pointwise strided, grouped": ((2, 4, 5, 6), (6, 2, 1, 1), 2, (2, 2), (1, 1), (0, 0, 0, 0)),
    "3-D": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 1), 1, (1, 2, 1), (1, 1, 1), (0, 1, 0, 1, 1, 0)),
    "padding wider than the kernel": ((1, 1, 3), (1, 1, 2), 1, (1,), (1,), (4, 3)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-12), (np.float32, 2e-6), (np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3)],
    ids=["float64", "float32", "float16", "bfloat16"],
)
def test_conv_sums_products_over_the_window(case, dtype, tolerance):
    shape, filters, group, strides, dilations, pads = case
    generator = np.random.default_rng(7)
    x, w, b = (generator.standard_normal(s).astype(dtype) for s in (shape, filters, filters[:1]))
    y = conv(x, w, b, group=group, strides=strides, dilations=dilations, pads=pads)
    expected = by_definition(x, w, b, group, strides, dilations, pads)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 4)


def test_conv_reads_non_contiguous_inputs():
    generator = np.random.default_rng(1)
    x = generator.standard_normal((5, 6, 4, 2)).transpose(3, 2, 0, 1)
    w = generator.standard_normal((3, 3, 4, 8))[:, :, :, ::2].transpose(3, 2, 0, 1)
    np.testing.assert_allclose(conv(x, w), by_definition(x, w, None, 1, (1, 1), (1, 1), (0, 0, 0, 0)), rtol=1e-12)


def test_conv_works_in_parts_when_the_columns_are_large(monkeypatch):
    monkeypatch.setattr("ort_core.kernels.reference.images.convolution._COLUMN_BYTES", 100)
    generator = np.random.default_rng(2)
    x, w = generator.standard_normal((3, 2, 6)), generator.standard_normal((2, 2, 3))
    np.testing.assert_allclose(conv(x, w), by_definition(x, w, None, 1, (1,), (1,), (0, 0)), rtol=1e-12)


def test_conv_gives_an_empty_result_for_an_empty_batch():
    assert conv(np.zeros((0, 2, 5), np.float32), np.zeros((3, 2, 3), np.float32)).shape == (0, 3, 3)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_conv_pads_by_itself_as_onnxruntime_does(auto_pad, by_onnxruntime):
    generator = np.random.default_rng(3)
    x = generator.standard_normal((1, 2, 7, 8), np.float32)
    w = generator.standard_normal((2, 2, 2, 4), np.float32)
    expected = by_onnxruntime("Conv", [x, w], 11, auto_pad=auto_pad, strides=[2, 3])[0]
    np.testing.assert_allclose(conv(x, w, auto_pad=auto_pad, strides=(2, 3)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_conv_transpose_is_the_adjoint_of_conv(case):
    shape, filters, group, strides, dilations, pads = case
    generator = np.random.default_rng(4)
    x, w = generator.standard_normal(shape), generator.standard_normal(filters)
    y = conv(x, w, group=group, strides=strides, dilations=dilations, pads=pads)
    other = generator.standard_normal(y.shape)
    reach = [(k - 1) * d + 1 for k, d in zip(filters[2:], dilations, strict=True)]
    rank = len(reach)
    natural = [
        s * (o - 1) + r - a - z
        for s, o, r, a, z in zip(strides, y.shape[2:], reach, pads[:rank], pads[rank:], strict=True)
    ]
    extra = tuple(size - n for size, n in zip(shape[2:], natural, strict=True))
    back = conv_transpose(other, w, group=group, strides=strides, dilations=dilations, pads=pads, output_padding=extra)
    np.testing.assert_allclose((y * other).sum(), (x * back).sum(), rtol=1e-10)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("output_shape", [[10, 9], [9, 7], [8, 6]])
def test_conv_transpose_fits_a_given_output_shape_as_onnxruntime_does(auto_pad, output_shape, by_onnxruntime):
    generator = np.random.default_rng(5)
    x, w = generator.standard_normal((1, 2, 3, 4), np.float32), generator.standard_normal((2, 3, 3, 3), np.float32)
    attributes = {"strides": (3, 2), "output_shape": tuple(output_shape), "auto_pad": auto_pad}
    expected = by_onnxruntime("ConvTranspose", [x, w], 11, **attributes)[0]
    np.testing.assert_allclose(conv_transpose(x, w, **attributes), expected, rtol=1e-5, atol=1e-5)


def test_col2im_undoes_im2col_up_to_how_often_an_element_was_read():
    x = np.random.default_rng(6).standard_normal((2, 3, 5, 6))
    windows = slide((5, 6), (2, 3), (1, 2), (2, 1), (1, 0, 1, 1))
    columns = im2col(x, windows)
    counts = im2col(np.ones_like(x), windows)
    flat = (2, 3 * 6, -1)
    attributes = {"strides": (1, 2), "dilations": (2, 1), "pads": (1, 0, 1, 1)}
    image = col2im_kernel(columns.reshape(flat), np.array([5, 6]), np.array([2, 3]), **attributes)
    times = col2im_kernel(counts.reshape(flat), np.array([5, 6]), np.array([2, 3]), **attributes)
    np.testing.assert_allclose(image, x * times, rtol=1e-12)


@pytest.mark.parametrize("group", [1, 2])
def test_deformable_conv_without_displacement_is_conv(group):
    generator = np.random.default_rng(8)
    x, w = generator.standard_normal((2, 4, 6, 7)), generator.standard_normal((4, 4 // group, 3, 2))
    attributes = {"group": group, "strides": (1, 2), "dilations": (1, 2), "pads": (1, 1, 0, 1)}
    expected = conv(x, w, **attributes)
    offset = np.zeros((2, 2 * 2 * 6, *expected.shape[2:]))
    mask = np.full((2, 2 * 6, *expected.shape[2:]), 0.5)
    np.testing.assert_allclose(deform_conv(x, w, offset, offset_group=2, **attributes), expected, rtol=1e-10)
    masked = deform_conv(x, w, offset, None, mask, offset_group=2, **attributes)
    np.testing.assert_allclose(masked, expected / 2, rtol=1e-10)


def test_deformable_conv_interpolates_between_elements_and_reads_zero_outside():
    x = np.arange(4.0).reshape(1, 1, 4)
    offset = np.array([0.25, -0.5, 0.5, 0.5]).reshape(1, 1, 4)
    np.testing.assert_allclose(deform_conv(x, np.ones((1, 1, 1)), offset), [[[0.25, 0.5, 2.5, 1.5]]])


def test_causal_conv_continues_where_the_state_left_off():
    generator = np.random.default_rng(9)
    x, w = generator.standard_normal((2, 3, 7)), generator.standard_normal((3, 1, 4))
    whole, state = causal_conv_with_state(x, w, activation="silu")
    first, carried = causal_conv_with_state(x[:, :, :2], w, activation="silu")
    second, last = causal_conv_with_state(x[:, :, 2:], w, None, carried, activation="silu")
    np.testing.assert_allclose(np.concatenate([first, second], axis=2), whole, rtol=1e-12)
    np.testing.assert_array_equal(last, state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strides": (0,)}, "All stride values must be positive"),
        ({"dilations": (-1,)}, "All dilation values must be positive"),
        ({"pads": (1,)}, "twice the kernel_shape rank"),
        ({"group": 2}, "Input channels C is not equal to kernel channels"),
        ({"kernel_shape": (2,)}, "kernel_shape is not compatible with W shape"),
        ({"auto_pad": "SOME"}, "auto_pad is 'SOME'"),
    ],
)
def test_conv_refuses_what_does_not_fit(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        conv(np.zeros((1, 2, 5), np.float32), np.zeros((2, 2, 3), np.float32), **arguments)
