"""Scales, zero points and quantized numbers beside those of onnxruntime's own tool."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxruntime.quantization import quant_utils as theirs

from ort_quantization import quant_utils as ours
from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantizers.quantized_tensors import dequantized
from ort_quantization.quantizers.scales import parameters_of

INTEGERS = [
    TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4,
]  # fmt: skip
TYPES = [*INTEGERS, TensorProto.FLOAT8E4M3FN]
FLOATS = [np.float32, np.float16]
GREAT = {np.float32: 3e38, np.float16: 6e4}


def name(tensor_type: int) -> str:
    return TensorProto.DataType.Name(tensor_type)


def samples(dtype: type) -> dict[str, np.ndarray]:
    """Numbers of many kinds: both signs, one sign, constant, zero, tiny, as large as they get."""
    random = np.random.default_rng(7)
    found = {
        "both signs": random.normal(size=301),
        "positive": random.uniform(0.5, 3.0, 64),
        "negative": -random.uniform(0.5, 3.0, 64),
        "constant": np.full(5, 0.25),
        "zeros": np.zeros(9),
        "tiny": random.normal(size=30) * (1e-39 if dtype is np.float32 else 1e-7),
        "skewed": np.append(random.normal(size=50), 40.0),
        "one": np.array([-1.5]),
    }
    return {kind: numbers.astype(dtype) for kind, numbers in found.items()}


def as_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("tensor_type", TYPES, ids=name)
def test_numbers_are_quantized_as_onnxruntime_quantizes_them(tensor_type, symmetric, dtype):
    for kind, numbers in samples(dtype).items():
        if tensor_type == TensorProto.FLOAT8E4M3FN and np.std(numbers) == 0:
            continue  # a scale of zero: the tool divides by it
        expected = theirs.quantize_data(numbers, tensor_type, symmetric)
        found = ours.quantize_data(numbers, tensor_type, symmetric)
        for part, here, there in zip(("zero point", "scale", "numbers"), found, expected, strict=True):
            assert here.dtype == there.dtype, (kind, part)
            np.testing.assert_array_equal(as_bytes(here), as_bytes(there), err_msg=f"{kind}: {part}")


@pytest.mark.parametrize("tensor_type", INTEGERS, ids=name)
@pytest.mark.parametrize(("reduced", "symmetric"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("floor", [None, 0.5, 4.0])
def test_reduced_ranges_and_ranges_of_a_least_width_are_onnxruntimes(tensor_type, reduced, floor, symmetric):
    for numbers in samples(np.float32).values():
        expected = theirs.compute_data_quant_params(numbers, tensor_type, symmetric, reduced, floor)
        found = ours.compute_data_quant_params(numbers, tensor_type, symmetric, reduced, floor)
        assert [each.item() for each in found] == [each.item() for each in expected]


@pytest.mark.parametrize("dtype", FLOATS)
def test_ranges_wider_than_their_type_reaches_have_scales(dtype):
    ends = np.array(-GREAT[dtype], dtype), np.array(GREAT[dtype], dtype)
    for tensor_type in (TensorProto.INT8, TensorProto.UINT8):
        integers = ours.get_qmin_qmax_for_qType(tensor_type)
        found = ours.compute_scale_zp(*ends, *integers)
        assert [each.item() for each in found] == [each.item() for each in theirs.compute_scale_zp(*ends, *integers)]


@pytest.mark.parametrize("floor", [None, 0.1, 3.0])
@pytest.mark.parametrize("ends", [(0.0, 0.0), (-1.0, 3.0), (0.2, 3.0), (-4.0, -1.0), (-0.5, 0.1)])
@pytest.mark.parametrize("top", [255, 127])
def test_snapped_zero_points_are_onnxruntimes(ends, floor, top):
    reals = [np.float32(end) for end in ends]
    expected = theirs.snap_zero_point_to_uint8(*reals, 0, top, floor)
    found = ours.snap_zero_point_to_uint8(*reals, 0, top, floor)
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-7)


@pytest.mark.parametrize("tensor_type", INTEGERS, ids=name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scale_for_each_channel_is_the_scale_of_the_channel(tensor_type, axis):
    numbers = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)
    found = parameters_of(numbers, tensor_type, True, axis=axis)
    tensor = onnx.numpy_helper.from_array(numbers, "w")
    for channel in range(numbers.shape[axis]):
        zero_point, scale = theirs.compute_data_quant_params(numbers.take(channel, axis).ravel(), tensor_type, True)
        assert (found.zero_point[channel], found.scale[channel]) == (zero_point, scale)
    expected = theirs.quantize_onnx_initializer(tensor, tensor_type, found.zero_point, found.scale, axis)
    assert ours.quantize_onnx_initializer(tensor, tensor_type, found.zero_point, found.scale, axis) == expected


@pytest.mark.parametrize("tensor_type", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8], ids=name)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("symmetric", [False, True])
def test_blocks_of_a_matrix_are_quantized_as_onnxruntime_does(tensor_type, axis, symmetric):
    numbers = np.random.default_rng(5).normal(size=(37, 21)).astype(np.float32)
    expected = theirs.compute_scale_zp_blocked(numbers, tensor_type, axis, 8, symmetric)
    found = ours.compute_scale_zp_blocked(numbers, tensor_type, axis, 8, symmetric)
    np.testing.assert_array_equal(found[0].astype(int), expected[0].astype(int))
    np.testing.assert_allclose(found[1], expected[1], rtol=3e-7)  # the tool subtracts the ends of blocks in float32
    tensor = onnx.numpy_helper.from_array(numbers, "w")
    there = theirs.quantize_onnx_initializer(tensor, tensor_type, *expected, axis, block_size=8)
    here = ours.quantize_onnx_initializer(tensor, tensor_type, *expected, axis, block_size=8)
    assert here.raw_data == there.raw_data


@pytest.mark.parametrize("tensor_type", TYPES, ids=name)
def test_what_was_quantized_lies_within_half_a_scale(tensor_type):
    numbers = np.random.default_rng(11).normal(size=400).astype(np.float32)
    parameters = parameters_of(numbers, tensor_type, False)
    back = dequantized(ours.quantize_data(numbers, tensor_type, False)[2], parameters)
    limit = parameters.scale * 0.5001 if tensor_type in INTEGERS else np.abs(numbers) / 16 + parameters.scale / 1024
    assert (np.abs(back - numbers) <= limit).all()


def test_bytes_are_packed_in_pairs():
    for count in (0, 1, 2, 7):
        numbers = bytes(range(count))
        assert ours.pack_bytes_to_4bit(numbers) == theirs.pack_bytes_to_4bit(numbers)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    numbers = np.array([1.0, bad], np.float32)
    with pytest.raises(InvalidQuantization, match="finite"):
        parameters_of(numbers, TensorProto.INT8, True)


def test_blocks_of_anything_but_a_matrix_are_refused():
    with pytest.raises(InvalidQuantization, match="matrices"):
        ours.compute_scale_zp_blocked(np.ones((2, 2, 2), np.float32), TensorProto.INT4, 0, 2, True)


def test_the_names_of_types_formats_and_modes_are_onnxruntimes():
    for kind in ("QuantType", "QuantFormat", "QuantizationMode", "QuantizedValueType"):
        expected = {each.name: each.value for each in getattr(theirs, kind)}
        assert {each.name: each.value for each in getattr(ours, kind)} == expected
        assert all(str(each) == each.name for each in getattr(ours, kind))
    assert all(each.tensor_type == theirs.QuantType[each.name].tensor_type for each in ours.QuantType)
    with pytest.raises(ValueError, match="QInt8"):
        ours.QuantType.from_string("QInt9")
