"""Quantized operators and QDQ groups by the CPU provider, against onnxruntime and the reference provider."""

from __future__ import annotations

from collections.abc import Mapping
from unittest import mock

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from test_groups import FLOAT, N, model_of, session

import ort_core as ort
from ort_core.cpu.lowering.views import Place
from ort_core.cpu.partition.admission import NO_HALVES
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.plugin.ir import DataType
from ort_core.tolerances import ToleranceName, compare

U8, I8 = TensorProto.UINT8, TensorProto.INT8
RANDOM = np.random.default_rng(11)
Constants = Mapping[str, np.ndarray]


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def grid(name: str, size: float, zero: int, dtype: type = np.uint8) -> dict[str, np.ndarray]:
    """Return the constants of a grid: ``name_s`` and ``name_z``."""
    return {f"{name}_s": scale(size), f"{name}_z": np.array(zero, dtype)}


def integers(*shape: int, dtype: type = np.int8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights(*shape: int) -> np.ndarray:
    """Return int8 weights of 7 bits: beside larger ones onnxruntime's sums saturate on x86 processors without VNNI."""
    return RANDOM.integers(-64, 64, shape).astype(np.int8)


def native_partitions(model: ModelProto) -> tuple[ort.InferenceSession, list[CpuPartition]]:
    """Return a session of the CPU provider, and its partitions."""
    made: list[CpuPartition] = []
    build = CpuPartition.__init__

    def noted(self: CpuPartition, *arguments: object, **named: object) -> None:
        build(self, *arguments, **named)  # type: ignore[arg-type]  # passed on as they came
        made.append(self)

    with mock.patch.object(CpuPartition, "__init__", noted):
        return session(model, "CPUExecutionProvider", optimized=True), made


def run_native(model: ModelProto, feeds: Mapping[str, np.ndarray], *, whole: bool = True) -> list[np.ndarray]:
    """Return the CPU provider's outputs; every node must have become machine code where ``whole``."""
    ran, made = native_partitions(model)
    refusals = {node.op_type: reason for partition in made for node, reason in partition.refusals.items()}
    if whole:
        if set(refusals.values()) == {NO_HALVES}:
            pytest.skip(NO_HALVES)
        assert not refusals
        assert sum(len(partition.native_programs) for partition in made) == 1
    return list(ran.run(None, dict(feeds)))


def check(model: ModelProto, feeds: Mapping[str, np.ndarray], name: ToleranceName = "exact") -> None:
    """Compare with onnxruntime: integers exactly, or within one step where a float is rounded (``approximate``)."""
    found = run_native(model, feeds)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, dict(feeds)
    )
    for number, (mine, its) in enumerate(zip(found, expected, strict=True)):
        assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
        comparison = compare(mine, its, "approximate" if its.dtype.kind == "f" else name)
        assert comparison.passes, f"output {number}: {comparison}"


def images(*shape: int, dtype: type = np.float32) -> np.ndarray:
    if dtype is np.float32:
        return RANDOM.standard_normal(shape).astype(np.float32)
    return integers(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_dequantize_equal_the_reference(dtype: type, axis: int | None) -> None:
    shape = (3, 5, 7)
    count = () if axis is None else (shape[axis],)
    limits = np.iinfo(dtype)
    zeros = RANDOM.integers(limits.min, limits.max, count).astype(dtype)
    constants = {"s": RANDOM.uniform(1e-3, 0.02, count).astype(np.float32), "z": zeros}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        N("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        N("DequantizeLinear", ["q", "s", "z"], ["r"], **attributes), N("Neg", ["r"], ["y"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of(nodes, {"x": (FLOAT, ["N", 5, 7])}, {"q": kind, "y": FLOAT}, constants, opset=21)
    x = images(*shape) * 3
    x[0, 0, :5] = [np.inf, -np.inf, 0.0, 1e30, -1e30]
    expected = session(model, "ReferenceExecutionProvider").run(None, {"x": x})
    for mine, its in zip(run_native(model, {"x": x}), expected, strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("zero", [0, 3], ids=["symmetric", "zero point"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("group", [1, 2, 8])
def test_qlinear_convolution_equals_onnxruntime(dtype: type, zero: int, group: int) -> None:
    constants = {
        **grid("x", 0.03, 5, dtype), "w": weights(8, 8 // group, 3, 3),
        "w_s": RANDOM.uniform(1e-3, 0.01, 8).astype(np.float32), "w_z": np.zeros(8, np.int8),
        **grid("y", 0.2, zero, dtype), "b": RANDOM.integers(-900, 900, 8).astype(np.int32),
    }  # fmt: skip
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z", "b"]
    node = N("QLinearConv", names, ["y"], pads=[1, 0, 2, 1], strides=[2, 1], group=group)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of([node], {"x": (kind, ["N", 8, 11, 9])}, {"y": kind}, constants)
    check(model, {"x": images(2, 8, 11, 9, dtype=dtype)}, "approximate")


@pytest.mark.parametrize(("x_zero", "w_zero"), [(0, 128), (7, 128), (7, 90)])
def test_integer_convolution_equals_onnxruntime(x_zero: int, w_zero: int) -> None:
    constants = {
        "w": integers(5, 3, 3, 2, dtype=np.uint8), "xz": np.array(x_zero, np.uint8), "wz": np.array(w_zero, np.uint8)
    }  # fmt: skip
    node = N("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=[1, 1, 1, 1], dilations=[2, 1])
    model = model_of([node], {"x": (U8, ["N", 3, 9, 8])}, {"y": TensorProto.INT32}, constants)
    check(model, {"x": images(2, 3, 9, 8, dtype=np.uint8)})


@pytest.mark.parametrize("size", [(9, 8), (10, 7), (1, 2)])
def test_the_border_of_open_sizes_is_the_zero_point(size: tuple[int, int]) -> None:
    constants = {"w": integers(5, 3, 3, 2, dtype=np.uint8), "xz": np.array(7, np.uint8), "wz": np.array(90, np.uint8)}
    node = N("ConvInteger", ["x", "w", "xz", "wz"], ["y"], auto_pad="SAME_UPPER", strides=[2, 3])
    model = model_of([node], {"x": (U8, ["N", 3, "H", "W"])}, {"y": TensorProto.INT32}, constants)
    check(model, {"x": images(2, 3, *size, dtype=np.uint8)})


@pytest.mark.parametrize("w_dtype", [np.int8, np.uint8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("x_dtype", [np.int8, np.uint8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("zeros", [False, True], ids=["no zero points", "zero points"])
def test_integer_product_equals_int64(x_dtype: type, w_dtype: type, zeros: bool) -> None:
    w = integers(37, 21, dtype=w_dtype)
    constants: dict[str, np.ndarray] = {"w": w}
    if zeros:
        constants |= {"xz": np.array(9, x_dtype), "wz": RANDOM.integers(0, 60, 21).astype(w_dtype)}
    node = N("MatMulInteger", ["x", "w", *(["xz", "wz"] if zeros else [])], ["y"])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(x_dtype))
    model = model_of([node], {"x": (kind, ["N", "M", 37])}, {"y": TensorProto.INT32}, constants)
    for size in ((2, 3), (1, 33), (0, 4)):
        x = integers(*size, 37, dtype=x_dtype)
        a = x.astype(np.int64) - (9 if zeros else 0)
        expected = a @ (w.astype(np.int64) - (constants["wz"] if zeros else 0))
        np.testing.assert_array_equal(run_native(model, {"x": x})[0], expected)


def test_dynamically_quantized_product_equals_onnxruntime() -> None:
    constants = {
        "w": weights(40, 24), "w_s": scale(0.01), "b": images(24), "wz": np.zeros((), np.int8),
    }  # fmt: skip
    nodes = [
        N("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), N("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        N("Cast", ["i"], ["f"], to=FLOAT), N("Mul", ["s", "w_s"], ["ss"]), N("Mul", ["f", "ss"], ["m"]),
        N("Add", ["b", "m"], ["y"]),
    ]  # fmt: skip
    outputs = {"y": FLOAT, "s": FLOAT, "z": U8, "q": U8}
    model = model_of(nodes, {"x": (FLOAT, ["N", "M", 40])}, outputs, constants)
    for x in (images(2, 5, 40), images(3, 700, 40) - 9, np.zeros((1, 1, 40), np.float32), images(1, 1, 40) + 50):
        check(model, {"x": x})


def residual_block(relu: bool, dtype: type) -> tuple[ModelProto, np.ndarray]:
    """Return Conv, Add, [Relu], MaxPool and Conv, each quantized, over dequantized constants."""
    zero = 0 if relu and dtype is np.uint8 else 4
    constants = {
        **grid("x", 0.02, 3, dtype), **grid("c", 0.05, zero, dtype), **grid("a", 0.06, zero, dtype),
        **grid("y", 0.09, 1, dtype), "w": weights(6, 6, 3, 3), "v": weights(9, 6, 1, 1),
        "w_s": RANDOM.uniform(0.001, 0.003, 6).astype(np.float32), "w_z": np.zeros(6, np.int8),
        "v_s": scale(0.004), "v_z": np.zeros((), np.int8), "b": RANDOM.integers(-500, 500, 6).astype(np.int32),
    }  # fmt: skip
    constants["b_s"] = constants["x_s"] * constants["w_s"]

    def dq(source: str, name: str, **attributes: int) -> object:
        return N("DequantizeLinear", [source, f"{name}_s", f"{name}_z"], [f"{source}_r"], **attributes)

    def q(source: str, name: str, out: str) -> object:
        return N("QuantizeLinear", [source, f"{name}_s", f"{name}_z"], [out])

    nodes = [
        q("x", "x", "xq"), dq("xq", "x"), dq("w", "w", axis=0), N("DequantizeLinear", ["b", "b_s"], ["b_r"], axis=0),
        N("Conv", ["xq_r", "w_r", "b_r"], ["c"], pads=[1, 1, 1, 1]), q("c", "c", "cq"), dq("cq", "c"),
        N("Add", ["cq_r", "xq_r"], ["a0"]), N("Relu" if relu else "Identity", ["a0"], ["a"]), q("a", "a", "aq"),
        dq("aq", "a"), N("MaxPool", ["aq_r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        q("p", "a", "pq"), dq("pq", "a"), dq("v", "v"), N("Conv", ["pq_r", "v_r"], ["d"]), q("d", "y", "y"),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model_of(nodes, {"x": (FLOAT, ["N", 6, 13, 10])}, {"y": kind}, constants), images(2, 6, 13, 10)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("relu", [False, True], ids=["no Relu", "Relu"])
def test_residual_block_between_quantizations_equals_onnxruntime(relu: bool, dtype: type) -> None:
    model, x = residual_block(relu, dtype)
    check(model, {"x": x}, "approximate")
    check(model, {"x": x[:0]}, "approximate")


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=lambda d: d.__name__)
def test_quantized_arithmetic_equals_onnxruntime(op_type: str, dtype: type) -> None:
    constants = {**grid("a", 0.03, 5, dtype), **grid("b", 0.02, 7, dtype), **grid("y", 0.05, 9, dtype)}
    names = ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = N(op_type, names, ["y"], domain="com.microsoft")
    model = model_of([node], {"a": (kind, ["N", 5, 19]), "b": (kind, [19])}, {"y": kind}, constants)
    check(model, {"a": images(3, 5, 19, dtype=dtype), "b": images(19, dtype=dtype)}, "approximate")


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=lambda d: d.__name__)
def test_quantized_arithmetic_of_all_bytes_is_the_nearest_number_of_the_grid(op_type: str, dtype: type) -> None:
    """Of every pair of bytes, by scales far apart, against float64."""
    least = np.iinfo(dtype).min
    bytes_ = np.arange(least, least + 256).astype(dtype)
    names = ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = N(op_type, names, ["y"], domain="com.microsoft")
    for scales, zeros in [
        ((0.03, 0.02, 0.05), (5, 7, 9)),
        ((1e-3, 40.0, 0.7), (0, 100, 3)),
        ((5.0, 0.1, 1e-2), (1, 2, 0)),
    ]:
        constants = {}
        for name, scale_, zero in zip("aby", scales, zeros, strict=True):
            constants |= grid(name, scale_, zero, dtype)
        model = model_of([node], {"a": (kind, ["N", 1]), "b": (kind, ["M"])}, {"y": kind}, constants)
        (found,) = ort.InferenceSession(model.SerializeToString()).run(None, {"a": bytes_[:, None], "b": bytes_})
        wide = [np.float32(scale_).astype(np.float64) for scale_ in scales]
        left, right = ((bytes_.astype(np.float64) - zero) * by for zero, by in zip(zeros[:2], wide[:2], strict=True))
        real = (left[:, None] + right if op_type == "QLinearAdd" else left[:, None] * right) / wide[2] + zeros[2]
        limited = np.clip(real, least, least + 255)
        assert np.abs(found - limited).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("op_type", ["QLinearLeakyRelu", "QLinearSigmoid"])
def test_quantized_activation_equals_onnxruntime(op_type: str) -> None:
    constants = {**grid("x", 0.05, 120), **grid("y", 0.02, 9)}
    node = N(op_type, ["x", "x_s", "x_z", "y_s", "y_z"], ["y"], domain="com.microsoft")
    model = model_of([node], {"x": (U8, ["N", 19])}, {"y": U8}, constants)
    check(model, {"x": images(3, 19, dtype=np.uint8)}, "approximate")


def test_quantized_concatenation_equals_onnxruntime() -> None:
    constants = {**grid("y", 0.04, 9), **grid("a", 0.05, 120), **grid("b", 0.02, 3)}
    node = N(
        "QLinearConcat", ["y_s", "y_z", "a", "a_s", "a_z", "b", "b_s", "b_z"], ["y"], "", None, "com.microsoft", axis=1
    )
    model = model_of([node], {"a": (U8, ["N", 4, 3]), "b": (U8, ["N", 2, 3])}, {"y": U8}, constants)
    check(model, {"a": images(3, 4, 3, dtype=np.uint8), "b": images(3, 2, 3, dtype=np.uint8)}, "approximate")


@pytest.mark.parametrize("transposed", [0, 1])
def test_quantized_gemm_equals_onnxruntime(transposed: int) -> None:
    constants = {
        **grid("a", 0.03, 5), "w": weights(*((18, 33) if transposed else (33, 18))), "w_s": scale(0.01),
        "w_z": np.zeros((), np.int8), "c": RANDOM.integers(-900, 900, 18).astype(np.int32), **grid("y", 0.2, 100),
    }  # fmt: skip
    names = ["a", "a_s", "a_z", "w", "w_s", "w_z", "c", "y_s", "y_z"]
    node = N("QGemm", names, ["y"], domain="com.microsoft", transB=transposed)
    model = model_of([node], {"a": (U8, ["N", 33])}, {"y": U8}, constants)
    check(model, {"a": images(7, 33, dtype=np.uint8)}, "approximate")


def test_qlinear_product_equals_onnxruntime() -> None:
    constants = {
        **grid("a", 0.03, 5), "w": integers(33, 18, dtype=np.uint8), "w_s": scale(0.01),
        "w_z": np.array(77, np.uint8), **grid("y", 0.2, 100),
    }  # fmt: skip
    node = N("QLinearMatMul", ["a", "a_s", "a_z", "w", "w_s", "w_z", "y_s", "y_z"], ["y"])
    model = model_of([node], {"a": (U8, ["N", "M", 33])}, {"y": U8}, constants)
    check(model, {"a": images(2, 7, 33, dtype=np.uint8)}, "approximate")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True], ids=["symmetric", "zero points"])
def test_product_with_few_bits_equals_onnxruntime(bits: int, zeros: bool) -> None:
    columns, depth, block = 24, 96, 32
    constants = {
        "w": integers(columns, depth // block, block * bits // 8, dtype=np.uint8),
        "s": RANDOM.uniform(0.01, 0.1, columns * (depth // block)).astype(np.float32),
    }
    if zeros:
        constants["z"] = integers(
            columns * -(-depth // block * bits // 8) if bits == 8 else columns * 2, dtype=np.uint8
        )
    node = N(
        "MatMulNBits", ["x", "w", "s", *(["z"] if zeros else [])], ["m"], domain="com.microsoft", K=depth, N=columns,
        bits=bits, block_size=block,
    )  # fmt: skip
    nodes = [node, N("Relu", ["m"], ["y"])]
    model = model_of(nodes, {"x": (FLOAT, ["N", "M", depth])}, {"y": FLOAT}, constants)
    for size in ((1, 1), (2, 9), (0, 3)):
        check(model, {"x": images(*size, depth)})


def test_weights_alone_quantized_are_dequantized_once() -> None:
    constants = {
        "w": integers(5, 3, 3, 3),
        "w_s": np.full(5, 0.01, np.float32),
        "v": integers(12, 7),
        "v_s": scale(0.1),
    }
    nodes = [
        N("DequantizeLinear", ["w", "w_s"], ["wr"], axis=0), N("Conv", ["x", "wr"], ["c"]),
        N("ReduceMean", ["c"], ["m"], axes=[2, 3], keepdims=0), N("DequantizeLinear", ["v", "v_s"], ["vr"]),
        N("Gemm", ["m", "vr"], ["y"]),
    ]  # fmt: skip
    constants["v"] = constants["v"][:5]
    model = model_of(nodes, {"x": (FLOAT, ["N", 3, 8, 8])}, {"y": FLOAT}, constants, opset=13)
    x = images(2, 3, 8, 8)
    (expected,) = session(model, "ReferenceExecutionProvider").run(None, {"x": x})
    comparison = compare(run_native(model, {"x": x})[0], expected, "approximate")
    assert comparison.passes, comparison


@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 2, 1, 0], [2, 0, 0, 1]], ids=str)
@pytest.mark.parametrize("is_read_twice", [False, True], ids=["one reader", "two readers"])
def test_image_stored_inside_the_border_of_the_next_convolution_equals_onnxruntime(
    pads: list[int], is_read_twice: bool
) -> None:
    channels = 20
    constants = {
        "w": integers(channels, 3, 1, 1), "v": integers(channels, 1, 3, 3), "w_s": scale(0.02), "v_s": scale(0.004),
        **grid("x", 0.05, 128), **grid("h", 0.04, 7), **grid("y", 0.06, 100),
    }  # fmt: skip
    nodes = [
        N("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"]), N("DequantizeLinear", ["xq", "x_s", "x_z"], ["xr"]),
        N("DequantizeLinear", ["w", "w_s"], ["wr"]), N("Conv", ["xr", "wr"], ["c"]), N("Relu", ["c"], ["a"]),
        N("QuantizeLinear", ["a", "h_s", "h_z"], ["aq"]), N("DequantizeLinear", ["aq", "h_s", "h_z"], ["ar"]),
        N("DequantizeLinear", ["v", "v_s"], ["vr"]),
        N("Conv", ["ar", "vr"], ["d"], pads=pads, strides=[2, 1], group=channels),
        N("QuantizeLinear", ["d", "y_s", "y_z"], ["y"]),
    ]  # fmt: skip
    outputs = {"y": U8}
    if is_read_twice:
        nodes += [N("Neg", ["ar"], ["n"]), N("QuantizeLinear", ["n", "h_s", "x_z"], ["z"])]
        outputs["z"] = U8
    model = model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, outputs, constants, opset=13)
    for size in ((1, 3, 9, 9), (2, 3, 5, 17), (1, 3, 30, 31)):
        check(model, {"x": images(*size)}, "approximate")


@pytest.mark.parametrize("shape", [[1, 8, -1], [1, -1]], ids=["pixels", "all"])
def test_quantized_images_are_reshaped_in_row_major_order(shape: list[int]) -> None:
    nodes = [
        N("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"]), N("DequantizeLinear", ["xq", "x_s", "x_z"], ["xf"]),
        N("DequantizeLinear", ["w", "w_s", "w_z"], ["wf"]), N("Conv", ["xf", "wf"], ["c"]),
        N("QuantizeLinear", ["c", "y_s", "y_z"], ["cq"]), N("DequantizeLinear", ["cq", "y_s", "y_z"], ["cf"]),
        N("Reshape", ["cf", "shape"], ["r"]), N("QuantizeLinear", ["r", "y_s", "y_z"], ["y"]),
    ]  # fmt: skip
    constants = {
        **grid("x", 0.02, 128), **grid("w", 0.01, 0, np.int8), **grid("y", 0.05, 120), "w": weights(8, 3, 1, 1),
        "shape": np.array(shape),
    }  # fmt: skip
    check(model_of(nodes, {"x": (FLOAT, [1, 3, 5, 6])}, {"y": U8}, constants), {"x": images(1, 3, 5, 6)}, "rounding")


def most_elements(model: ModelProto) -> int:
    """Return the elements of the largest float tensor that a step writes for other steps."""
    (program,) = native_partitions(model)[1][0].native_programs
    kept = [each for step in program.steps for each in step.writes if each.place is Place.ARENA]
    counts = [each.count for each in kept if each.dtype is DataType.FLOAT]
    return max([each for each in counts if isinstance(each, int)], default=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32], ids=lambda d: d.__name__)
def test_rows_of_a_quantized_table_are_gathered_as_integers(dtype: type, axis: int) -> None:
    constants = {"t": integers(700, 60, dtype=dtype), **grid("t", 0.03, 0 if dtype is np.int32 else 7, dtype)}
    nodes = [
        N("DequantizeLinear", ["t", "t_s", "t_z"], ["real"]), N("Gather", ["real", "i"], ["rows"], axis=axis),
        N("Relu", ["rows"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"i": (TensorProto.INT64, [2, 3])}, {"rows": FLOAT, "y": FLOAT}, constants, opset=21)
    check(model, {"i": np.array([[0, -1, 59], [5, 5, -60]])})
    assert most_elements(model) < 700 * 60


def test_quantized_embeddings_are_summed_and_normalized_by_one_program() -> None:
    constants, nodes, inputs = {}, [], {}
    for name, rows, size in (("word", 300, 0.01), ("place", 50, 0.007), ("type", 2, 0.003)):
        constants |= {name: integers(rows, 32, dtype=np.uint8), **grid(name, size, 120 + rows % 7)}
        inputs[f"{name}_i"] = (TensorProto.INT64, ["N", 5])
        nodes.append(N("DequantizeLinear", [name, f"{name}_s", f"{name}_z"], [f"{name}_real"]))
        nodes.append(N("Gather", [f"{name}_real", f"{name}_i"], [f"{name}_row"]))
    for left, right, made in (("word_row", "place_row", "a"), ("a_real", "type_row", "b")):
        constants |= grid(made, 0.02, 130)
        nodes.append(N("Add", [left, right], [f"{made}_sum"]))
        nodes.append(N("QuantizeLinear", [f"{made}_sum", f"{made}_s", f"{made}_z"], [f"{made}_stored"]))
        nodes.append(N("DequantizeLinear", [f"{made}_stored", f"{made}_s", f"{made}_z"], [f"{made}_real"]))
    constants |= {"gain": images(32), "shift": images(32)}
    nodes.append(N("LayerNormalization", ["b_real", "gain", "shift"], ["y"], axis=-1))
    model = model_of(nodes, inputs, {"y": FLOAT}, constants)
    check(model, {name: RANDOM.integers(0, 2, (3, 5)) for name in inputs})


def test_a_quantized_product_that_several_nodes_read_is_stored_in_bytes() -> None:
    constants = {**grid("x", 0.03, 120), "w": weights(64, 48), "w_s": scale(0.004), **grid("y", 0.05, 110)}
    nodes = [
        N("DequantizeLinear", ["x", "x_s", "x_z"], ["x_real"]), N("DequantizeLinear", ["w", "w_s"], ["w_real"]),
        N("MatMul", ["x_real", "w_real"], ["product"]), N("QuantizeLinear", ["product", "y_s", "y_z"], ["stored"]),
        N("DequantizeLinear", ["stored", "y_s", "y_z"], ["real"]), N("Erf", ["real"], ["share"]),
        N("Mul", ["real", "share"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": (U8, [40, 64])}, {"y": FLOAT}, constants)
    check(model, {"x": integers(40, 64, dtype=np.uint8)})
    assert most_elements(model) == 0


@pytest.mark.parametrize("sizes", [(3, 5, 64, 7), (1, 1, 300, 40), (2, 9, 1, 4)], ids=str)
@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.int8)])
def test_quantized_product_of_two_computed_sides_equals_onnxruntime(sizes: tuple, left: type, right: type) -> None:
    batch, rows, depth, columns = sizes
    constants = {**grid("a", 0.01, 3, left), **grid("b", 0.02, 5, right), **grid("y", 0.5, 9, left)}
    names = ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"]
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in (left, right)]
    inputs = {"a": (kinds[0], ["N", rows, "K"]), "b": (kinds[1], ["N", "K", columns])}
    model = model_of([N("QLinearMatMul", names, ["y"])], inputs, {"y": kinds[0]}, constants)
    check(model, {"a": integers(batch, rows, depth, dtype=left), "b": integers(batch, depth, columns, dtype=right)})


def test_quantized_sum_of_a_size_that_may_be_one_equals_onnxruntime() -> None:
    constants = {**grid("a", 0.01, 3), **grid("b", 0.02, 5), **grid("y", 0.03, 9)}
    node = N("QLinearAdd", ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"], ["y"], domain="com.microsoft")
    model = model_of([node], {"a": (U8, ["N", "M", 8]), "b": (U8, [1, "K", 8])}, {"y": U8}, constants)
    for rows in (6, 1):
        check(model, {"a": integers(2, 6, 8, dtype=np.uint8), "b": integers(1, rows, 8, dtype=np.uint8)})
