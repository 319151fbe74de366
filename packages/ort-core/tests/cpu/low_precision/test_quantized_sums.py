"""Sums of a quantized convolution and a residual, quantized again: exact on grids of powers of two, and short."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper
from test_groups import N, model_of

import ort_core as ort
from ort_core.cpu.codegen.quantized.integer_convolution_plan import IntegerConvolution, arranged
from ort_core.cpu.lowering.rules.quantized import integer_anchors
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar

RANDOM = np.random.default_rng(7)
SHARE = 2.0**-9  # of a sum, in steps of the first grid: half of them lie beyond its ends


def quantized_sum(dtype: type, zeros: tuple[int, int, int], relu: bool, outputs: int) -> tuple[ModelProto, np.ndarray]:
    """Return a 1x1 convolution, rounded to a grid, and a residual on that of its input; their sum is on a third one.

    The residual is what another convolution makes of the second input, which changes nothing but where bytes lie.
    """
    weights = RANDOM.integers(-127, 128, (outputs, outputs, 1, 1)).astype(np.int8)
    constants = {
        "i": 64 * np.eye(outputs, dtype=np.int8)[:, :, None, None], "i_s": np.array(1 / 64, np.float32),
        "w": weights, "w_s": np.array(SHARE, np.float32), "w_z": np.array(0, np.int8),
        "x_s": np.array(0.5, np.float32), "c_s": np.array(0.5, np.float32), "a_s": np.array(0.75, np.float32),
        **{name: np.array(zero, dtype) for name, zero in zip(("x_z", "c_z", "a_z"), zeros, strict=True)},
    }  # fmt: skip
    nodes = [
        N("DequantizeLinear", ["x", "x_s", "x_z"], ["r"]), N("DequantizeLinear", ["w", "w_s", "w_z"], ["v"]),
        N("Conv", ["r", "v"], ["c"]), N("QuantizeLinear", ["c", "c_s", "c_z"], ["cq"]),
        N("DequantizeLinear", ["other", "x_s", "x_z"], ["f"]), N("DequantizeLinear", ["i", "i_s", "w_z"], ["j"]),
        N("Conv", ["f", "j"], ["g"]), N("QuantizeLinear", ["g", "x_s", "x_z"], ["gq"]),
        N("DequantizeLinear", ["cq", "c_s", "c_z"], ["d"]), N("DequantizeLinear", ["gq", "x_s", "x_z"], ["o"]),
        N("Add", ["d", "o"], ["s"]),
        N("Relu" if relu else "Identity", ["s"], ["t"]), N("QuantizeLinear", ["t", "a_s", "a_z"], ["y"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = {name: (kind, ["N", outputs, "H", "W"]) for name in ("x", "other")}
    return model_of(nodes, inputs, {"y": kind}, constants), weights


def expected(
    x: np.ndarray, other: np.ndarray, weights: np.ndarray, zeros: tuple[int, int, int], relu: bool
) -> np.ndarray:
    """Return what the nodes say, in exact numbers but for the last division, of which no quotient is near a tie."""
    limits = np.iinfo(x.dtype)
    x_zero, c_zero, a_zero = zeros
    levels = x.astype(np.int64) - x_zero
    sums = np.einsum("nchw,oc->nohw", levels, weights[:, :, 0, 0].astype(np.int64))
    first = np.clip(np.rint(sums * SHARE) + c_zero, limits.min, limits.max) - c_zero
    total = (first + other - float(x_zero)) * 0.5
    return np.clip(np.rint((np.maximum(total, 0) if relu else total) / 0.75) + a_zero, limits.min, limits.max)


def run(model: ModelProto, x: np.ndarray, other: np.ndarray, threads: int) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x, "other": other})[0])


@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("outputs", [7, 32, 40])
@pytest.mark.parametrize("relu", [False, True], ids=["no Relu", "Relu"])
@pytest.mark.parametrize(
    ("dtype", "zeros"),
    [
        (np.uint8, (0, 128, 3)), (np.uint8, (255, 1, 130)), (np.uint8, (9, 255, 0)), (np.uint8, (4, 0, 0)),
        (np.int8, (0, -128, 5)), (np.int8, (-3, 127, -128)), (np.int8, (127, 11, 0)),
    ],
)  # fmt: skip
def test_sums_of_quantized_values_are_exact_beyond_both_ends_of_every_grid(
    dtype: type, zeros: tuple[int, int, int], relu: bool, outputs: int, threads: int
) -> None:
    model, weights = quantized_sum(dtype, zeros, relu, outputs)
    limits = np.iinfo(dtype)
    for size in ((1, 1), (5, 7), (16, 9)):
        x, other = RANDOM.integers(limits.min, limits.max + 1, (2, 2, outputs, *size)).astype(dtype)
        found = run(model, x, other, threads)
        np.testing.assert_array_equal(found, expected(x, other, weights, zeros, relu))


def test_a_zero_point_that_would_be_taken_off_again_is_never_added(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Scalar] = []

    def noted(spec: IntegerConvolution, *arguments: object) -> IntegerConvolution:
        seen.append(spec.expression)
        return arranged(spec, *arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(integer_anchors, "arranged", noted)
    model, _ = quantized_sum(np.uint8, (0, 128, 0), True, 32)
    images = np.zeros((1, 32, 3, 3), np.uint8)
    run(model, images, images, 1)
    operations = names(seen[-1])
    assert len(seen) == 2
    assert operations.count("fma") == 1, "the first scale is multiplied and the second product added at once"
    assert operations.count("select") == 2, "the limits of the first grid are moved"
    assert operations.count("sub") == operations.count("add") == 0


def names(expression: Scalar) -> list[str]:
    """Return the operations on floats of an expression, each node once."""
    nodes: dict[int, Scalar] = {}

    def walk(node: Scalar) -> None:
        nodes[id(node)] = node
        for argument in node.arguments:
            walk(argument)

    walk(expression)
    return [node.operation for node in nodes.values() if node.dtype is DataType.FLOAT]
