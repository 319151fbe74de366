"""float16 and bfloat16 graphs by the CPU provider, against float64.

They are computed in float32 and rounded where they leave.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto
from test_groups import FLOAT, N, model_of, session
from test_quantized_groups import run_native

from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.llvm_targets import restricted_target, target_of
from ort_core.tolerances import compare

HALF, BRAIN = TensorProto.FLOAT16, TensorProto.BFLOAT16
NUMBERS = {HALF: np.dtype(np.float16), BRAIN: np.dtype(ml_dtypes.bfloat16), TensorProto.DOUBLE: np.dtype(np.float64)}
RANDOM = np.random.default_rng(5)


def halves(*shape: int) -> np.ndarray:
    """Return float64 numbers that both types hold exactly."""
    return RANDOM.standard_normal(shape).astype(ml_dtypes.bfloat16).astype(np.float64)


W, B, SCALE, KERNEL = halves(24, 17), halves(17), halves(24), halves(6, 3, 3, 3)
CASES: dict[str, tuple[list[NodeProto], list[int | str]]] = {
    "arithmetic": ([N("Mul", ["x", "x"], ["t"]), N("Add", ["t", "scale"], ["u"]), N("Neg", ["u"], ["y"])], ["N", 24]),
    "activation": ([N("Sigmoid", ["x"], ["t"]), N("Tanh", ["t"], ["u"]), N("Exp", ["u"], ["y"])], ["N", 24]),
    "product": ([N("MatMul", ["x", "w"], ["t"]), N("Add", ["t", "b"], ["u"]), N("Relu", ["u"], ["y"])], ["N", 24]),
    "computed product": ([N("Transpose", ["x"], ["t"], perm=[1, 0]), N("MatMul", ["x", "t"], ["y"])], ["N", 24]),
    "normalization": ([N("LayerNormalization", ["x", "scale"], ["t"]), N("Softmax", ["t"], ["y"])], ["N", 24]),
    "convolution": ([N("Conv", ["x", "kernel"], ["t"], pads=[1, 1, 1, 1]), N("Relu", ["t"], ["y"])], ["N", 3, 7, 8]),
    "views": (
        [N("Reshape", ["x", "shape"], ["t"]), N("Concat", ["t", "t"], ["u"], axis=1), N("Neg", ["u"], ["y"])],
        ["N", 24],
    ),
    "casts": ([N("Cast", ["x"], ["t"], to=FLOAT), N("Abs", ["t"], ["u"]), N("Cast", ["u"], ["y"], to=HALF)], ["N", 24]),
}  # fmt: skip


def model_for(nodes: list[NodeProto], shape: list[int | str], dtype: int) -> ModelProto:
    number = NUMBERS[dtype]
    constants = {"w": W, "b": B, "scale": SCALE, "kernel": KERNEL}
    used = {name for node in nodes for name in node.input}
    floats = {name: array.astype(number) for name, array in constants.items() if name in used}
    wide = [N(node.op_type, list(node.input), list(node.output)) for node in nodes]
    for copy, node in zip(wide, nodes, strict=True):
        copy.attribute.extend(node.attribute)
        if node.op_type == "Cast" and (dtype == TensorProto.DOUBLE or node.attribute[0].i == HALF):
            copy.attribute[0].i = dtype
    if "shape" in used:
        floats["shape"] = np.array([-1, 6, 4])
    model = model_of(wide, {"x": (dtype, shape)}, {"y": dtype}, floats)
    model.opset_import[0].version = 22  # the first in which convolutions take bfloat16
    return model


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [0, 1, 5, 33])
@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=["float16", "bfloat16"])
def test_halves_equal_float64_rounded_once(name: str, size: int, dtype: int) -> None:
    nodes, shape = CASES[name]
    x = halves(size, *(each for each in shape if isinstance(each, int)))
    wide = session(model_for(nodes, shape, TensorProto.DOUBLE), "ReferenceExecutionProvider")
    (expected,) = wide.run(None, {"x": x})
    (found,) = run_native(model_for(nodes, shape, dtype), {"x": x.astype(NUMBERS[dtype])})
    assert found.dtype == NUMBERS[dtype]
    comparison = compare(found, expected.astype(NUMBERS[dtype]), "rounding")
    assert comparison.passes, comparison


def is_nan(x: np.ndarray) -> np.ndarray:
    """Return where bfloat16 numbers are NaN, by their bits: an operation on a signalling one warns."""
    return (x.view(np.uint16) & 0x7FFF) > 0x7F80


def test_every_bfloat16_widens_and_rounds_back_to_itself() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(1, -1)
    x = bits.view(ml_dtypes.bfloat16)
    nodes = [N("Neg", ["x"], ["t"]), N("Neg", ["t"], ["y"])]
    (found,) = run_native(model_of(nodes, {"x": (BRAIN, ["N", 1 << 16])}, {"y": BRAIN}), {"x": x})
    numbers = ~is_nan(x)
    np.testing.assert_array_equal(found.view(np.uint16)[numbers], bits[numbers])
    assert is_nan(found[~numbers]).all()


def test_float32_rounds_to_the_nearest_bfloat16() -> None:
    bits = np.random.default_rng(3).integers(0, 1 << 32, (1, 1 << 16), dtype=np.uint32)
    bits[0, :4] = 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001  # ties to even, beyond the range, NaN by its low bits
    x = bits.view(np.float32)
    nodes = [N("Neg", ["x"], ["s"]), N("Neg", ["s"], ["t"]), N("Cast", ["t"], ["y"], to=BRAIN)]
    (found,) = run_native(model_of(nodes, {"x": (FLOAT, ["N", 1 << 16])}, {"y": BRAIN}), {"x": x})
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        expected = x.astype(ml_dtypes.bfloat16)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(found.view(np.uint16)[numbers], expected.view(np.uint16)[numbers])
    assert is_nan(found[~numbers]).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=["float16", "bfloat16"])
def test_rows_of_tables_of_halves_keep_their_bits(dtype: int, axis: int) -> None:
    table = halves(9, 40).astype(NUMBERS[dtype])
    indices = np.array([[0, -1, 8], [3, 3, 5]])
    nodes = [N("Gather", ["table", "i"], ["g"], axis=axis), N("Neg", ["g"], ["t"]), N("Neg", ["t"], ["y"])]
    model = model_of(nodes, {"i": (TensorProto.INT64, ["A", "B"])}, {"g": dtype, "y": dtype}, {"table": table})
    for found in run_native(model, {"i": indices}):
        np.testing.assert_array_equal(found, np.take(table, indices, axis=axis))


def test_float16_keeps_infinities_and_nan() -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 65504.0, -65504.0, 6e-8]], np.float16)
    model = model_of([N("Add", ["x", "x"], ["t"]), N("Neg", ["t"], ["y"])], {"x": (HALF, ["N", 6])}, {"y": HALF})
    (found,) = run_native(model, {"x": x})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, -(x + x))


EYE = np.eye(4, dtype=np.float32)


@pytest.mark.parametrize("before", [N("Neg", ["x"], ["a"]), N("MatMul", ["x", "eye"], ["a"])], ids=["Neg", "MatMul"])
@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=["float16", "bfloat16"])
def test_a_cast_to_halves_and_back_rounds_within_a_group(dtype: int, before: NodeProto) -> None:
    x = np.array([[1.0001, 1 / 3, 7e4, 1e-9], [-2049.5, 65519.0, -6e-8, 0.0]], np.float32)
    nodes = [before, N("Cast", ["a"], ["h"], to=dtype), N("Cast", ["h"], ["f"], to=FLOAT), N("Neg", ["f"], ["y"])]
    weights = {"eye": EYE} if before.op_type == "MatMul" else {}
    (found,) = run_native(model_of(nodes, {"x": (FLOAT, ["N", 4])}, {"y": FLOAT}, weights), {"x": x})
    with np.errstate(over="ignore"):
        rounded = x.astype(NUMBERS[dtype]).astype(np.float32)
    np.testing.assert_array_equal(found, rounded if before.op_type == "Neg" else -rounded)


def test_float16_needs_a_processor_that_converts_it() -> None:
    assert converts_halves(target_of("aarch64-unknown-linux-gnu", "generic", "+neon"))
    assert not converts_halves(restricted_target("f16c"))
