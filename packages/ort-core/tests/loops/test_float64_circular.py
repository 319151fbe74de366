"""Circular functions of float64 keep their stated errors, also near whole quarter turns, beside sums of 60 digits."""

from __future__ import annotations

import functools
import math
from decimal import Decimal

import numpy as np
import pytest
from compiled_scalar import check_error, compiled
from onnx import TensorProto, helper

import ort_core as ort
from ort_core.loops import float64_circular
from ort_core.loops.float64_circular import CIRCULAR, MAX_ULP, MOST_CIRCULAR

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")
NAMES = pytest.mark.parametrize("name", list(MAX_ULP))
SPECIAL = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -1e-310, 1e-300, -1e-9, 1.0, -1.0, 2.0**20])


def sine_and_cosine_of(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Return both by their series."""
    sums, term, number = [Decimal(0), Decimal(0)], Decimal(1), 0
    while abs(term) > Decimal(10) ** -DIGITS or number < 8:
        sums[number % 2] += term if number % 4 < 2 else -term
        number += 1
        term = term * angle / number
    return sums[1], sums[0]


def truth(name: str, x: float) -> Decimal:
    sine, cosine = sine_and_cosine_of(Decimal(x) % (2 * PI))
    return {"sin": sine, "cos": cosine}[name] if name != "tan" else sine / cosine


def samples() -> np.ndarray:
    """Numbers of all sizes, and those nearest to whole quarter turns, of which the hardest are known by search."""
    random = np.random.default_rng(3)
    quarters = random.integers(-(2**19), 2**19, 120) * float(PI / 2)
    hard = [float(Decimal(k) * PI / 2) for k in (1, 2, 3, 4, 344, 573204, 51819, 103638, 208341, 312689, 104348)]
    drawn = [random.uniform(-MOST_CIRCULAR, MOST_CIRCULAR, 120), random.uniform(-7, 7, 200), quarters,
             10.0 ** random.uniform(-12, 6, 120), np.linspace(-0.8, 0.8, 41)]  # fmt: skip
    x = np.concatenate([*drawn, hard, np.nextafter(hard, 0), np.nextafter(hard, 9e9)])
    return x[np.abs(x) <= MOST_CIRCULAR]


@NAMES
@pytest.mark.parametrize("without", [(), ("avx512", "amx"), ("fma", "avx", "amx")], ids=["host", "AVX2", "SSE"])
def test_function_keeps_its_stated_error(name: str, without: tuple[str, ...]) -> None:
    function, exact = getattr(float64_circular, name), functools.partial(truth, name)
    check_error(function, exact, samples(), MAX_ULP[name], digits=DIGITS + 30, without=without)


@NAMES
def test_function_of_special_values_is_numpy_s(name: str) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(SPECIAL)
        allowed = 2 * np.spacing(np.abs(expected))  # of NaN it warns on Windows
    found = compiled(getattr(float64_circular, name), SPECIAL)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    same = np.isnan(expected) | (np.abs(found - expected) <= allowed)
    assert same.all(), f"{found}, not {expected}"
    np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))


@pytest.mark.parametrize("name", list(CIRCULAR))
@pytest.mark.parametrize("threads", [1, 4])
def test_larger_arguments_are_those_of_the_kernel(name: str, threads: int) -> None:
    """A program that meets one gives way to numpy, which reduces all of float64."""
    nodes = [helper.make_node(name, ["x"], ["a"]), helper.make_node("Mul", ["a", "x"], ["y"])]
    info = [helper.make_tensor_value_info(each, TensorProto.DOUBLE, ["N"]) for each in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "numpy:" not in str(session.explain())
    x = np.linspace(-3, 3, 5001)
    for place, value in ((0, 1.0), (5000, 1e300), (17, -(2.0**20) - 1), (4000, math.inf), (3, 1e22)):
        x[place] = value
        with np.errstate(all="ignore"):
            expected = getattr(np, name.lower())(x) * x
        found = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=0)
