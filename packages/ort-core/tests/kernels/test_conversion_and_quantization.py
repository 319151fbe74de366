"""Cast, quantization and quantized products against exact arithmetic, onnx.reference and the specification's tables."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.reference.elementwise import cast
from ort_core.kernels.reference.generators import generators, window_functions
from ort_core.kernels.reference.images import quantized_convolution
from ort_core.kernels.reference.products import quantized_matmul
from ort_core.kernels.reference.quantization import quantization

FLOAT8 = (DataType.FLOAT8E4M3FN, DataType.FLOAT8E4M3FNUZ, DataType.FLOAT8E5M2, DataType.FLOAT8E5M2FNUZ)
NUMERIC = [t for t in DataType if t.is_float or t.is_integer or t is DataType.BOOL]


@pytest.mark.parametrize("source", NUMERIC, ids=lambda t: t.text)
@pytest.mark.parametrize("target", NUMERIC, ids=lambda t: t.text)
def test_every_type_converts_to_every_type(source, target):
    ones = np.ones((2, 3), np.float32).astype(source.numpy)
    got = cast.cast(ones, to=target)
    assert got.dtype == target.numpy
    np.testing.assert_array_equal(got.astype(np.float32), np.ones((2, 3), np.float32))
    assert cast.cast(ones[:0], to=target).shape == (0, 3)


@pytest.mark.parametrize("target", FLOAT8, ids=lambda t: t.text)
def test_float8_saturates_only_when_asked(target):
    x = np.array([1e9, -1e9, np.inf, np.nan], np.float32)
    limit = float(ml_dtypes.finfo(target.numpy).max)
    np.testing.assert_array_equal(
        cast.cast(x, to=target).astype(np.float32), np.array([limit, -limit, limit, np.nan], np.float32)
    )
    loose = cast.cast(x, to=target, saturate=0).astype(np.float32)
    has_infinity = target is DataType.FLOAT8E5M2
    np.testing.assert_array_equal(loose[0], np.float32(np.inf if has_infinity else np.nan))


def test_float8e8m0_rounds_as_asked():
    x = np.array([1.0, 1.1, 1.5, 1.9, 0.0, np.inf, np.nan, 3e38], np.float32)

    def codes(**how):
        return cast.cast(x, to=DataType.FLOAT8E8M0, **how).view(np.uint8).tolist()

    assert codes() == [127, 128, 128, 128, 0, 254, 255, 254]
    assert codes(round_mode="down") == [127, 127, 127, 127, 0, 254, 255, 254]
    assert codes(round_mode="nearest") == [127, 127, 128, 128, 0, 254, 255, 254]
    assert codes(saturate=0)[4:] == [255, 255, 255, 255]


def test_small_integers_round_and_wrap():
    x = np.array([-8.5, -1.6, 0.4, 0.5, 7.0, 31.9], np.float32)
    assert cast.cast(x, to=DataType.INT4).astype(int).tolist() == [7, -2, 0, 1, 7, 0]
    assert cast.cast(np.array([200, -5], np.int16), to=DataType.UINT4).astype(int).tolist() == [8, 11]


def test_numbers_are_written_as_onnxruntime_writes_them():
    x = np.array([0, -0.0, 1 / 3, 1e10, 314.15926, -2.5e-7, np.nan, np.inf, -np.inf], np.float32)
    want = ["0", "-0", "0.33333334", "1e+10", "314.15927", "-2.5e-07", "NaN", "INF", "-INF"]
    assert cast.cast(x, to=DataType.STRING).tolist() == want
    assert cast.cast(np.array([True, False]), to=DataType.STRING).tolist() == ["1", "0"]
    assert cast.cast(np.array(-7, np.int8), to=DataType.STRING).tolist() == "-7"


def test_text_is_read_up_to_the_first_character_that_is_no_number():
    x = np.array([" 7 ", "1.5abc", "1e3", "-INF", "nan", "0x10"], object)
    np.testing.assert_array_equal(cast.cast(x, to=DataType.FLOAT), np.array([7, 1.5, 1000, -np.inf, np.nan, 16]))
    assert cast.cast(np.array(["300", "-3", "1e3"], object), to=DataType.UINT8).tolist() == [44, 253, 1]
    with pytest.raises(InvalidArgument, match="'abc' does not begin with a number"):
        cast.cast(np.array(["abc"], object), to=DataType.FLOAT)


def test_an_unknown_type_number_is_refused():
    with pytest.raises(InvalidArgument, match="999 is not an element type"):
        cast.cast(np.zeros(1, np.float32), to=999)


def test_bit_cast_keeps_bits_and_is_its_own_inverse():
    x = np.array([[1.0, -2.0, np.nan]], np.float32)
    back = cast.bit_cast(cast.bit_cast(x[:, ::-1], to=DataType.UINT32), to=DataType.FLOAT)
    np.testing.assert_array_equal(back.view(np.uint32), np.ascontiguousarray(x[:, ::-1]).view(np.uint32))
    assert cast.bit_cast(np.array([-1, 3], ml_dtypes.int4), to=DataType.UINT4).astype(int).tolist() == [15, 3]
    with pytest.raises(InvalidArgument, match="as wide as each other"):
        cast.bit_cast(x, to=DataType.INT64)


@pytest.mark.parametrize("target", [DataType.UINT8, DataType.INT8, DataType.UINT16, DataType.INT16, DataType.INT4])
def test_quantization_round_trips_within_half_a_step(target):
    scale, zero_point = np.array(0.25, np.float32), np.array(3, target.numpy)
    low, high = quantization.integer_limits(target.numpy)
    x = np.linspace((low - 3) * 0.25, (high - 3) * 0.25, 101).astype(np.float32)
    quantized = quantization.quantize_linear(x, scale, zero_point)
    assert quantized.dtype == target.numpy
    back = quantization.dequantize_linear(quantized, scale, zero_point)
    assert np.max(np.abs(back - x)) <= 0.125
    beyond = quantization.quantize_linear(np.array([-1e9, 1e9, np.nan], np.float32), scale, zero_point)
    assert beyond.astype(int).tolist() == [low, high, low]


def test_blocked_scales_cover_the_last_partial_block():
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    scale = np.array([[1, 2, 4], [1, 2, 4]], np.float32)
    got = quantization.quantize_linear(x, scale, np.zeros((2, 3), np.uint8), axis=1, block_size=2)
    np.testing.assert_array_equal(got, np.rint(x / np.repeat(scale, 2, axis=1)[:, :5]).astype(np.uint8))
    with pytest.raises(InvalidArgument, match="does not fit"):
        quantization.quantize_linear(x, scale[:, :2], axis=1, block_size=2)


def _reference(op_type, feeds, output_type, opset, **attributes):
    node = onnx.helper.make_node(op_type, list(feeds), ["y"], **attributes)
    infos = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds.items()
    ]
    graph = onnx.helper.make_graph([node], "g", infos, [onnx.helper.make_tensor_value_info("y", output_type, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, feeds)[0]


@pytest.mark.parametrize("x_dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("w_dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"pads": (1, 0, 2, 1), "strides": (2, 1)}, {"dilations": (2, 1), "group": 2}, {"auto_pad": "SAME_UPPER"}],
    ids=["plain", "padded", "grouped", "same"],
)
def test_integer_convolution_equals_the_float_one(x_dtype, w_dtype, attributes):
    generator = np.random.default_rng(9)
    x = generator.integers(0, 100, (2, 4, 7, 6)).astype(x_dtype)
    w = generator.integers(0, 100, (6, 4 // attributes.get("group", 1), 3, 2)).astype(w_dtype)
    zero_x, zero_w = np.array(5, x_dtype), np.array(7, w_dtype)
    got = quantized_convolution.conv_integer(x, w, zero_x, zero_w, **attributes)
    feeds = {"x": x.astype(np.float64) - 5, "w": w.astype(np.float64) - 7}
    want = _reference("Conv", feeds, onnx.TensorProto.DOUBLE, 11, **attributes)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)


def test_quantized_products_saturate_at_the_type_of_the_output():
    a, b = np.full((2, 3), 200, np.uint8), np.full((3, 2), 100, np.int8)
    one, zero = np.array(1, np.float32), np.array(0, np.uint8)
    got = quantized_matmul.q_linear_mat_mul(a, one, zero, b, one, np.array(0, np.int8), one, zero)
    np.testing.assert_array_equal(got, np.full((2, 2), 255, np.uint8))
    exact = quantized_matmul.mat_mul_integer(a, b)
    np.testing.assert_array_equal(exact, np.full((2, 2), 60000, np.int32))


def test_dynamic_quantization_of_nothing_and_of_zeros_has_scale_one():
    for x in (np.zeros(0, np.float32), np.zeros((2, 2), np.float32)):
        y, scale, zero_point = quantization.dynamic_quantize_linear(x)
        assert y.shape == x.shape
        assert (float(scale), int(zero_point)) == (1.0, 0)


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_a_symmetric_window_is_a_periodic_one_of_one_more_element(name):
    function = {
        "HannWindow": window_functions.hann_window,
        "HammingWindow": window_functions.hamming_window,
        "BlackmanWindow": window_functions.blackman_window,
    }[name]
    periodic = function(np.array(10), output_datatype=DataType.DOUBLE)
    symmetric = function(np.array(11), output_datatype=DataType.DOUBLE, periodic=0)
    np.testing.assert_allclose(periodic, symmetric[:10], atol=1e-12)
    assert function(np.array(0)).shape == (0,)
    lone = [function(np.array(1), output_datatype=DataType.DOUBLE, periodic=flag) for flag in (0, 1)]
    np.testing.assert_allclose(lone, [[np.nan], periodic[:1]], atol=1e-12)  # 0 / 0, as in onnx.reference


def test_constant_takes_each_kind_of_value():
    assert generators.constant(value_float=1.5).dtype == np.float32
    assert generators.constant(value_ints=(1, 2)).tolist() == [1, 2]
    assert generators.constant(value_string="a").dtype == object
    with pytest.raises(InvalidArgument, match="exactly one"):
        generators.constant()
