"""Loop kernels: one formula for numpy and the compiler, fused into its neighbors like a built-in operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from acme import REFERENCE, fast_softcap, session_of
from numpy.typing import NDArray

import ort_core as ort
from ort_core import tolerances
from ort_core.errors import InvalidArgument, OrtError
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, element, erf, exp, exp2_of_negative, log, maximum, select, sigmoid, tanh

T = TypeVar("T", np.float32, np.int32)
Wide = TypeVar("Wide", np.float32, np.float64)


def programs(session: ort.InferenceSession) -> list:
    return [p for planned in session._loaded.prepared.plan.steps for p in planned.step.compiled.native_programs]


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    limits = tolerances.tolerance("rounding", "float32")
    np.testing.assert_allclose(found, expected, limits.relative, limits.absolute)


def test_a_formula_is_compiled_even_when_it_stands_alone() -> None:
    session = session_of("g (float[N] x) => (float[N] y) { y = com.acme.FastSoftcap (x) }", fast_softcap)
    assert len(programs(session)) == 1
    x = np.linspace(-90, 90, 1001, dtype=np.float32)
    assert_close(session.run(None, {"x": x})[0], (30 * np.tanh(x.astype(np.float64) / 30)).astype(np.float32))


def test_a_formula_becomes_part_of_the_nest_around_it() -> None:
    body = """g (float[N,M] x, float[M] b) => (float[N,M] y) {
        s = Add (x, b)
        c = com.acme.FastSoftcap <cap: float = 4.0> (s)
        y = Sigmoid (c)
    }"""
    session = session_of(body, fast_softcap)
    (program,) = programs(session)
    assert len(program.steps) == 1, "one nest computes all three operators"
    rng = np.random.default_rng(0)
    for n in (3, 1, 70):
        x, b = rng.normal(0, 5, (n, 33)).astype(np.float32), rng.normal(0, 5, 33).astype(np.float32)
        wide = 4 * np.tanh((x.astype(np.float64) + b) / 4)
        assert_close(session.run(None, {"x": x, "b": b})[0], (1 / (1 + np.exp(-wide))).astype(np.float32))


def test_a_formula_becomes_the_end_of_a_matrix_product() -> None:
    body = """g (float[N,8] x) => (float[N,16] y)
        <float[8,16] w = {%s}> { p = MatMul (x, w) y = com.acme.FastSoftcap <cap: float = 2.0> (p) }"""
    w = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    session = session_of(body % ", ".join(f"{v:.9g}" for v in w.ravel()), fast_softcap)
    (program,) = programs(session)
    alone = session_of(
        body.replace("p = MatMul (x, w) y = com.acme.FastSoftcap <cap: float = 2.0> (p)", "y = MatMul (x, w)")
        % ", ".join(f"{v:.9g}" for v in w.ravel())
    )
    assert len(program.steps) == len(programs(alone)[0].steps), "no step was added"
    x = np.random.default_rng(2).normal(size=(5, 8)).astype(np.float32)
    limits = tolerances.tolerance("approximate", "float32")
    expected = 2 * np.tanh(x.astype(np.float64) @ w / 2)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, limits.relative, limits.absolute)


def test_several_inputs_broadcast_and_shapes_are_known_before_the_run() -> None:
    @ort.elementwise_op("com.acme", "Gate")
    def gate(x: Scalar, g: Scalar, bias: Scalar | None = None) -> Scalar:
        return x * sigmoid(g if bias is None else g + bias)

    body = """g (float[N,1,M] x, float[K,1] g) => (float[N,K,M] y, float[A,B,C] z) {
        y = com.acme.Gate (x, g)  z = com.acme.Gate (x, g, x) }"""
    session = session_of(body, gate)
    assert session.get_outputs()[0].shape == ["N", "K", "M"]
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 1, 5)).astype(np.float32), rng.normal(size=(3, 1)).astype(np.float32)
    y, z = session.run(None, {"x": x, "g": g})
    assert_close(y, x / (1 + np.exp(-g)))
    assert_close(z, x / (1 + np.exp(-(g + x))))
    assert len(programs(session)) == 1


def test_a_formula_may_be_right_for_several_element_types() -> None:
    @ort.elementwise_op("com.acme", "Clamped", dtypes=(np.float32, np.int32))
    def clamped(x: Scalar, *, low: int = -1) -> Scalar:
        return maximum(x, low)

    for kind, dtype in (("float", np.float32), ("int32", np.int32)):
        session = session_of(f"g ({kind}[N] x) => ({kind}[N] y) {{ y = com.acme.Clamped (x) }}", clamped)
        np.testing.assert_array_equal(session.run(None, {"x": np.array([-3, 2], dtype)})[0], np.array([-1, 2], dtype))
    with pytest.raises(OrtError, match="Type Error"):
        session_of("g (double[N] x) => (double[N] y) { y = com.acme.Clamped (x) }", clamped)


def test_a_numpy_kernel_runs_where_the_formula_refuses_or_does_not_fit() -> None:
    calls = []

    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[T], *, scale: float = 1.0) -> NDArray[T]:
        calls.append(x.dtype.name)
        return (x * scale).astype(x.dtype)

    @op.loops
    def _(x: Scalar, *, scale: float) -> Scalar | Rejection:
        return x * scale if x.dtype is DataType.FLOAT else Rejection("only float32 has a formula")

    for kind, dtype in (("float", np.float32), ("int32", np.int32)):
        body = f"g ({kind}[N] x) => ({kind}[N] y) {{ y = com.acme.Op <scale: float = 2.0> (x) }}"
        found = session_of(body, op).run(None, {"x": np.array([3], dtype)})[0]
        assert (found.dtype, found[0]) == (dtype, 6)
    assert calls == ["int32"]


def test_the_reference_provider_evaluates_the_formula_over_numpy() -> None:
    session = session_of(
        "g (float[N] x) => (float[N] y) { y = com.acme.FastSoftcap (x) }", fast_softcap, provider=REFERENCE
    )
    x = np.linspace(-9, 9, 11, dtype=np.float32)
    assert_close(session.run(None, {"x": x})[0], 30 * np.tanh(x / 30))


def test_a_formula_that_branches_in_python_is_told_how_to_write_it() -> None:
    @ort.elementwise_op("com.acme", "Op")
    def op(x: Scalar) -> Scalar:
        return x if x > 0 else x * 0.5

    with pytest.raises(OrtError, match=r"(?s)loop kernel of com.acme::Op.*select\(condition, left, right\).*in op"):
        session_of("g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }", op)


def test_a_formula_that_calls_numpy_is_told_where_the_functions_are() -> None:
    @ort.elementwise_op("com.acme", "Op")
    def op(x: Scalar) -> object:
        return "tanh"

    with pytest.raises(OrtError, match=r"returned a str, expected an expression.*ort_core.plugin.loops"):
        session_of("g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }", op)


def test_comparisons_and_abs_of_expressions_make_conditions() -> None:
    @ort.elementwise_op("com.acme", "SoftShrink")
    def shrink(x: Scalar, *, by: float = 0.5) -> Scalar:
        return select(abs(x) <= by, 0.0, select(x < 0, x + by, x - by))

    x = np.array([-2, -0.5, 0.25, 0.5, 2], np.float32)
    session = session_of("g (float[N] x) => (float[N] y) { y = com.acme.SoftShrink (x) }", shrink)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [-1.5, 0, 0, 0, 1.5])


def test_an_operator_of_several_outputs_has_no_loop_kernel() -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[T]) -> tuple[NDArray[T], NDArray[T]]:
        return x, x

    with pytest.raises(InvalidArgument, match="2 outputs"):
        op.loops(lambda x: x)
    with pytest.raises(InvalidArgument, match="has a loop kernel already"):
        fast_softcap.loops(lambda x: x)


def test_functions_see_the_formula_of_the_version_that_holds() -> None:
    def version(since: int, factor: float):
        @ort.elementwise_op("com.acme", "Op", since)
        def op(x: Scalar) -> Scalar:
            return x * factor

        return op

    library = ort.OpLibrary("v", [version(1, 2.0), version(2, 3.0)])
    body = "g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }"
    for opset, factor in ((1, 2), (2, 3)):
        session = session_of(body, library, opsets=f'"" : 21, "com.acme" : {opset}')
        assert programs(session)
        assert session.run(None, {"x": np.ones(1, np.float32)})[0][0] == factor


def test_element_is_what_a_formula_is_given() -> None:
    assert isinstance(element(0, DataType.FLOAT) > 0, Scalar)


def test_a_function_of_float32_leaves_other_types_to_the_numpy_kernel() -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[Wide]) -> NDArray[Wide]:
        return np.exp2(x)

    op.loops(exp2_of_negative)
    x = np.linspace(-2, 0, 9)
    session = session_of("g (double[N] x) => (double[N] y) { y = com.acme.Op (x) }", op)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.exp2(x))

    @ort.elementwise_op("com.acme", "Op", dtypes=(np.float32, np.float64))
    def formula(x: Scalar) -> Scalar:
        return exp2_of_negative(x)

    with pytest.raises(OrtError, match="exp2_of_negative is of float, not of double"):
        session_of("g (double[N] x) => (double[N] y) { y = com.acme.Op (x) }", formula).run(None, {"x": x})


@pytest.mark.parametrize("function", [exp, log, sigmoid, tanh, erf], ids=lambda each: each.__name__)
def test_a_formula_of_elementary_functions_takes_float64(function: Callable[[Scalar], Scalar]) -> None:
    op = ort.elementwise_op("com.acme", "Op", dtypes=(np.float32, np.float64))(lambda x: function(x) * 2)
    x = np.linspace(0.1, 3, 40)
    session = session_of("g (double[N] x) => (double[N] y) { y = com.acme.Op (x) }", op)
    right = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": lambda v: 1 / (1 + np.exp(-v))}
    expected = right.get(function.__name__, np.vectorize(math.erf))(x) * 2
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-15)


def test_a_formula_for_a_type_that_none_computes_is_refused_where_it_is_written() -> None:
    for decorator in (ort.elementwise_op, ort.row_op):
        with pytest.raises(InvalidArgument, match=r"test_loop_kernels\.py.*no formula computes float16.*custom_op"):
            decorator("com.acme", "Op", dtypes=(np.float32, np.float16))(lambda x: x)
