"""Expressions evaluated over numpy: the same as the reference kernels of the operators that they mean."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core import tolerances
from ort_core.ir.types import DataType
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.loops.meanings import meaning_of
from ort_core.loops.numpy_evaluation import evaluate
from ort_core.loops.scalar import Scalar, binary, bitcast, cast, element, row_value, select, unary

SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 1e-30, 60.0, -60.0, np.inf, -np.inf, np.nan], np.float32)
UNARY = (
    "Neg", "Abs", "Sqrt", "Floor", "Ceil", "Round", "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Relu", "LeakyRelu", "Elu",
    "Selu", "Celu", "HardSigmoid", "Gelu", "Softplus", "Softsign", "ThresholdedRelu", "Reciprocal", "Sign", "IsNaN",
)  # fmt: skip
BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Min",
    "Max",
    "Equal",
    "Less",
    "Greater",
    "LessOrEqual",
    "GreaterOrEqual",
)


def kernel(op_type: str):
    return reference_kernels().find("", op_type, 21).function


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    result = tolerances.compare(found, expected, "approximate")
    assert result.passes, str(result)


@pytest.mark.parametrize("op_type", UNARY)
def test_an_expression_means_what_the_reference_kernel_computes_of(op_type: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(kernel(op_type)(SPECIAL))
    assert_close(evaluate(meaning_of("", op_type, [element(0, DataType.FLOAT)], {}), [SPECIAL]), expected)


@pytest.mark.parametrize("op_type", BINARY)
def test_two_inputs_broadcast_in(op_type: str) -> None:
    left, right = SPECIAL[:, None], SPECIAL[None, ::2]
    with np.errstate(all="ignore"):
        expected = np.asarray(kernel(op_type)(left, right))
    scalars = [element(index, DataType.FLOAT) for index in range(2)]
    assert_close(evaluate(meaning_of("", op_type, scalars, {}), [left, right]), expected)


def test_a_result_has_the_shape_of_all_inputs_though_it_reads_some_only() -> None:
    found = evaluate(element(0, DataType.FLOAT) * 2.0, [np.ones((3, 1), np.float32), np.ones(4, np.float32)])
    assert found.shape == (3, 4)
    assert evaluate(element(0, DataType.FLOAT), [np.float32(2).reshape(())]).shape == ()


def test_integers_divide_towards_zero_and_wrap() -> None:
    a, b = np.array([7, -7, 7, -7, -6], np.int32), np.array([2, 2, -2, -2, 3], np.int32)
    x, y = element(0, DataType.INT32), element(1, DataType.INT32)
    np.testing.assert_array_equal(evaluate(binary("div", x, y), [a, b]), [3, -3, -3, 3, -2])
    most = np.array([2**31 - 1], np.int32)
    np.testing.assert_array_equal(evaluate(x + 1, [most]), [-(2**31)])
    np.testing.assert_array_equal(evaluate(binary("lshr", x, 28), [np.array([-1], np.int32)]), [15])


def test_floats_out_of_range_become_the_nearest_integer() -> None:
    x = element(0, DataType.FLOAT)
    found = evaluate(cast(x, DataType.INT32), [np.array([1.9, -1.9, 3e9, -3e9, np.inf, np.nan], np.float32)])
    np.testing.assert_array_equal(found, [1, -1, 2**31 - 1, -(2**31), 2**31 - 1, 0])


def test_bits_are_read_as_another_type() -> None:
    ones = np.ones((2, 1), np.float32)
    np.testing.assert_array_equal(
        evaluate(bitcast(element(0, DataType.FLOAT), DataType.INT32), [ones]), [[0x3F800000]] * 2
    )


def test_what_belongs_to_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="'row' has no elementwise value"):
        evaluate(row_value(0) + 1.0, [])


def test_an_expression_is_no_condition_of_python() -> None:
    x = element(0, DataType.FLOAT)
    with pytest.raises(TypeError, match=r"select\(condition, left, right\)"):
        bool(x > 1)
    assert isinstance(select(unary("is_nan", x), 0.0, x), Scalar)
