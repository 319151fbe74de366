"""Single operators of the real DirectML on the rig: its shaders give numpy's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from directml_rig.single import Bench

from ort_core.plugin import EPFail
from ort_ep_directml.lowering.plan import PlanNode, Tensor
from ort_ep_directml.schema.element_types import ElementType

GENERATOR = np.random.default_rng(7)
TYPES = {np.dtype(kind.numpy): kind for kind in ElementType if kind.bits > 4}
WIDE = (1, 1, 8, 64)


def normal(*sizes: int, dtype: type = np.float32) -> np.ndarray:
    return GENERATOR.standard_normal(sizes).astype(dtype)


def whole(*sizes: int, dtype: type = np.int32, low: int = 0, high: int = 100) -> np.ndarray:
    return GENERATOR.integers(low, high, sizes).astype(dtype)


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(TYPES[array.dtype], array.shape)


@pytest.fixture
def bench(rig):
    return Bench(rig)


@pytest.fixture
def run(bench):
    """Run an operator: tensors of its inputs and outputs are made from arrays."""

    def call(kind: str, inputs: dict, expected: dict, **numbers) -> list[np.ndarray]:
        fields = {name: tensor(array) for name, array in {**inputs, **expected}.items() if array is not None}
        node = PlanNode(kind, {**fields, **numbers}, (None,) * len(inputs))
        return bench.run(node, list(inputs.values()))

    return call


def close(found: np.ndarray, expected: np.ndarray, within: float = 1e-6) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=within * scale)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint32, np.int8, np.uint8, np.int16, np.uint16])
def test_sums_have_each_type(run, dtype):
    a, b = whole(*WIDE, dtype=dtype, high=50), whole(*WIDE, dtype=dtype, high=50)

    (found,) = run("ELEMENT_WISE_ADD", {"A": a, "B": b}, {"Output": a + b})

    close(found, a + b)


@pytest.mark.parametrize(
    ("kind", "formula", "exact_to"),
    [
        ("ELEMENT_WISE_EXP", np.exp, 1e-6),
        ("ELEMENT_WISE_SIN", np.sin, 1e-6),
        ("ELEMENT_WISE_TANH", np.tanh, 1e-6),
        ("ELEMENT_WISE_ATAN", np.arctan, 2e-5),  # DirectML's is a polynomial: 1.2e-5 off in float32
        ("ELEMENT_WISE_FLOOR", np.floor, 0),
        ("ELEMENT_WISE_ABS", np.abs, 0),
    ],
)
@pytest.mark.parametrize(("dtype", "rounding"), [(np.float32, 0), (np.float16, 1e-3)])
def test_functions_of_one_number(run, kind, formula, exact_to, dtype, rounding):
    x = normal(*WIDE, dtype=dtype)
    expected = formula(x.astype(np.float64)).astype(dtype)

    (found,) = run(kind, {"Input": x}, {"Output": expected})

    close(found, expected, max(exact_to, rounding))


@pytest.mark.parametrize(("function", "formula"), [(7, np.max), (2, np.mean), (8, np.min), (9, np.prod), (10, np.sum)])
@pytest.mark.parametrize("axes", [(3,), (2,), (2, 3), (1, 2, 3)])
def test_reductions_wait_at_barriers(run, function, formula, axes):
    x = np.abs(normal(2, 3, 5, 70)) * 0.1 + 0.95
    expected = formula(x.astype(np.float64), axis=axes, keepdims=True).astype(np.float32)

    (found,) = run("REDUCE", {"Input": x}, {"Output": expected}, Function=function, Axes=axes)

    close(found, expected, 3e-6)


@pytest.mark.parametrize(("function", "formula"), [(0, np.argmax), (1, np.argmin)])
def test_places_of_extremes(run, function, formula):
    x = normal(2, 3, 5, 70)
    expected = np.expand_dims(formula(x, axis=3), 3).astype(np.uint32)

    (found,) = run("REDUCE", {"Input": x}, {"Output": expected}, Function=function, Axes=(3,))

    close(found, expected)


@pytest.mark.parametrize(("dtype", "within"), [(np.float32, 1e-6), (np.float16, 2e-3)])
@pytest.mark.parametrize("transposed", [0, 1])
def test_products_of_matrices(run, dtype, within, transposed):
    a, b, c = normal(1, 2, 65, 48, dtype=dtype), normal(1, 2, 48, 33, dtype=dtype), normal(1, 2, 65, 33, dtype=dtype)
    expected = (0.5 * (a.astype(np.float64) @ b) + 2 * c.astype(np.float64)).astype(dtype)
    right = b.swapaxes(2, 3) if transposed else b

    (found,) = run(
        "GEMM",
        {"A": a, "B": np.ascontiguousarray(right), "C": c},
        {"Output": expected},
        TransA=0,
        TransB=transposed,
        Alpha=0.5,
        Beta=2.0,
    )

    close(found, expected, within)


def test_convolutions_in_groups_with_strides(run):
    x, w, bias = normal(2, 4, 9, 9), normal(6, 2, 3, 3), normal(1, 6, 1, 1)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, 2 * group : 2 * group + 2], w[3 * group : 3 * group + 3])
        for group in range(2)
    ]
    expected = (np.concatenate(parts, axis=1) + bias).astype(np.float32)

    (found,) = run(
        "CONVOLUTION",
        {"Input": x, "Filter": w, "Bias": bias},
        {"Output": expected},
        Mode=1,
        Direction=0,
        Strides=(2, 2),
        Dilations=(1, 1),
        StartPadding=(1, 1),
        EndPadding=(1, 1),
        OutputPadding=(0, 0),
        GroupCount=2,
    )

    close(found, expected, 2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_greatest_of_many(run, dtype):
    x = GENERATOR.permutation(1200).reshape(1, 1, 4, 300).astype(dtype)
    order = np.argsort(-x, axis=3, kind="stable")[..., :5]

    values, indices = run(
        "TOP_K",
        {"Input": x},
        {"OutputValue": np.take_along_axis(x, order, 3), "OutputIndex": order.astype(np.uint32)},
        Axis=3,
        K=5,
    )

    close(values, np.take_along_axis(x, order, 3))
    close(indices, order.astype(np.uint32))


def test_rows_by_number(run):
    x, rows = normal(1, 1, 8, 64), whole(1, 1, 1, 4, dtype=np.uint32, high=8)
    expected = x[:, :, rows.ravel()]

    (found,) = run("GATHER", {"Input": x, "Indices": rows}, {"Output": expected}, Axis=2, IndexDimensions=1)

    close(found, expected)


@pytest.mark.parametrize("target", [np.float16, np.int32, np.uint8, np.int8, np.uint32])
def test_numbers_change_their_type(run, target):
    x = whole(*WIDE, dtype=np.float32, high=100)

    (found,) = run("CAST", {"Input": x}, {"Output": x.astype(target)})

    close(found, x.astype(target))


def test_a_descriptor_that_is_wrong_is_refused(run):
    a = normal(*WIDE)

    with pytest.raises(EPFail, match="E_INVALIDARG"):
        run("ELEMENT_WISE_ADD", {"A": a, "B": normal(1, 1, 8, 63)}, {"Output": a})
