"""Row formulas of users: compiled as one step with what stands in front, equal to float64, on any shape."""

from __future__ import annotations

import numpy as np
import pytest
from acme import REFERENCE, session_of
from numpy.typing import NDArray

import ort_core as ort
from ort_core import tolerances
from ort_core.errors import InvalidArgument, OrtError
from ort_core.plugin import Rejection
from ort_core.plugin.loops import Scalar, exp, exp_of_negative, row_max, row_mean, row_peak, row_sum, unary
from ort_core.testing import OpCase, check_custom_op
from ort_core.testing.cuda_emulation import find_compiler


@ort.row_op("com.acme", "ScaledSoftmax")
def scaled_softmax(x: Scalar, *, scale: float = 1.0) -> Scalar:
    e = exp((x - row_max(x)) * scale)
    return e / row_sum(e)


@ort.row_op("com.acme", "Norm")
def norm(
    x: Scalar, weight: Scalar, bias: Scalar | None = None, *, epsilon: float = 1e-5
) -> tuple[Scalar, Scalar, Scalar]:
    mean = row_mean(x)
    centered = x - mean
    inverse = 1.0 / unary("sqrt", row_mean(centered * centered) + epsilon)
    y = centered * inverse * weight
    return (y if bias is None else y + bias), mean, inverse


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(1, 2, shape).astype(np.float32)


def steps_of(session: ort.InferenceSession) -> list:
    compiled = [planned.step.compiled for planned in session._loaded.prepared.plan.steps]
    return [step for each in compiled for program in each.native_programs for step in program.steps]


def steps(session: ort.InferenceSession) -> int:
    return len(steps_of(session))


def wide_softmax(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    powers = np.exp((x.astype(np.float64) - x.max(-1, keepdims=True)) * scale)
    return powers / powers.sum(-1, keepdims=True)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    limits = tolerances.tolerance("approximate", "float32")
    np.testing.assert_allclose(found, expected, limits.relative, limits.absolute)


def test_a_softmax_like_operator_is_one_step_with_what_stands_in_front() -> None:
    body = """g (float[N,M] x, float[M] b) => (float[N,M] y) {
        s = Add (x, b)  t = Mul (s, s)  y = com.acme.ScaledSoftmax <scale: float = 0.5> (t) }"""
    session = session_of(body, scaled_softmax)
    assert steps(session) == 1
    for n, m in ((3, 33), (1, 1), (7, 300), (0, 4)):
        x, b = floats(n, m), floats(m, seed=1)
        assert_close(session.run(None, {"x": x, "b": b})[0], wide_softmax((x.astype(np.float64) + b) ** 2, 0.5))


def test_softmax_as_a_formula_is_the_same_code_as_the_built_in_one() -> None:
    @ort.row_op("com.acme", "OwnSoftmax")
    def own_softmax(x: Scalar) -> Scalar:
        e = exp_of_negative(x - row_peak(x))
        return e * (1.0 / row_sum(e))

    bodies = [f"g (float[N,M] x) => (float[N,M] y) {{ y = {op} (x) }}" for op in ("com.acme.OwnSoftmax", "Softmax")]
    kernels = [[step.kernel for step in steps_of(session_of(body, own_softmax))] for body in bodies]
    assert kernels[0] == kernels[1], "kernels are named by what they compute"


def test_results_of_rows_go_on_into_a_larger_group() -> None:
    w = floats(8, 16, seed=2)
    values = ", ".join(f"{v:.9g}" for v in w.ravel())
    body = f"""g (float[N,8] x) => (float[N,16] y) <float[8,16] w = {{{values}}}>
        {{ p = MatMul (x, w)  r = Relu (p)  s = com.acme.ScaledSoftmax (r)  y = Mul (s, r) }}"""
    session = session_of(body, scaled_softmax)
    assert len(session._loaded.prepared.plan.steps) == 1, "one native group"
    x = floats(5, 8)
    r = np.maximum(x.astype(np.float64) @ w, 0)
    assert_close(session.run(None, {"x": x})[0], wide_softmax(r) * r)


def test_several_outputs_have_the_shapes_that_their_formulas_tell() -> None:
    body = """g (float[B,N,M] x, float[M] w, float[M] b) => (float[B,N,M] y, float[B,N,O] m, float[B,N,O] i) {
        y, m, i = com.acme.Norm (x, w, b) }"""
    session = session_of(body, norm)
    assert [o.shape for o in session.get_outputs()] == [["B", "N", "M"], ["B", "N", 1], ["B", "N", 1]]
    assert steps(session) == 1
    x, w, b = floats(2, 3, 70), floats(70, seed=1), floats(70, seed=2)
    y, mean, inverse = session.run(None, {"x": x, "w": w, "b": b})
    wide = x.astype(np.float64)
    expected = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert_close(mean, wide.mean(-1, keepdims=True))
    assert_close(inverse, expected)
    assert_close(y, (wide - wide.mean(-1, keepdims=True)) * expected * w + b)


def test_an_output_that_nobody_reads_is_not_computed() -> None:
    session = session_of("g (float[N,M] x, float[M] w) => (float[N,A] m) { , m = com.acme.Norm (x, w) }", norm)
    x = floats(4, 9)
    assert_close(session.run(None, {"x": x, "w": floats(9)})[0], x.astype(np.float64).mean(-1, keepdims=True))


def test_everything_that_a_session_may_do_agrees_with_the_numpy_form() -> None:
    cases = [
        OpCase([floats(2, 3, 37), floats(37), floats(37)]), OpCase([floats(5, 16), floats(16)]),
        OpCase([floats(5, 16), floats(1), floats(5, 1)]), OpCase([floats(1, 16), floats(4, 1, 16)]),
        OpCase([floats(4, 0), floats(1)]), OpCase([floats(16), floats(16)]),
    ]  # fmt: skip
    for report in (check_custom_op(norm, cases), check_custom_op(scaled_softmax)):
        assert "loop kernel compiled by the CPU provider" in report.checked
        by_cuda = report.checked if find_compiler() else report.not_checked
        assert "loop kernel printed as CUDA C++ (emulated)" in by_cuda


def test_formulas_of_several_outputs_without_rows_are_fused_like_any_other() -> None:
    @ort.row_op("com.acme", "SplitSign")
    def split_sign(x: Scalar) -> tuple[Scalar, Scalar]:
        return (abs(x) + x) * 0.5, (abs(x) - x) * 0.5

    body = "g (float[N] x) => (float[N] y) { p, n = com.acme.SplitSign (x)  y = Add (p, n) }"
    session = session_of(body, split_sign)
    assert steps(session) == 1
    x = floats(17)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], abs(x))


def test_transposed_rows_and_columns_are_read_right() -> None:
    body = """g (float[N,M] x, float[N,1] w) => (float[M,N] y, float[N,M] z) {
        t = Transpose <perm: ints = [1, 0]> (x)  v = Transpose <perm: ints = [1, 0]> (w)
        y, a, b = com.acme.Norm (t, v)  z, c, d = com.acme.Norm (x, w) }"""
    session = session_of(body, norm)
    x, w = floats(6, 9), floats(6, 1, seed=1)
    y, z = session.run(None, {"x": x, "w": w})

    def expected(v: np.ndarray, by: np.ndarray) -> np.ndarray:
        wide = v.astype(np.float64)
        return (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * by

    assert_close(y, expected(x.T, w.T))
    assert_close(z, expected(x, w))


def test_a_numpy_kernel_may_have_row_formulas_and_runs_where_they_refuse() -> None:
    calls = []

    @ort.custom_op("com.acme", "Center")
    def center(x: NDArray[np.float32], *, robust: bool = False) -> NDArray[np.float32]:
        calls.append(robust)
        return x - (np.median(x, -1, keepdims=True) if robust else x.mean(-1, keepdims=True))

    @center.rows
    def _(x: Scalar, *, robust: bool) -> Scalar | Rejection:
        return Rejection("a median is not a reduction") if robust else x - row_mean(x)

    x = floats(3, 5)
    for robust, middle in ((0, np.mean), (1, np.median)):
        body = f"g (float[N,M] x) => (float[N,M] y) {{ y = com.acme.Center <robust: int = {robust}> (x) }}"
        assert_close(session_of(body, center).run(None, {"x": x})[0], x - middle(x, -1, keepdims=True))
    assert calls == [True]


def test_the_reference_provider_evaluates_row_formulas_over_numpy() -> None:
    body = "g (float[N,M] x) => (float[N,M] y) { y = com.acme.ScaledSoftmax (x) }"
    x = floats(3, 8)
    assert_close(session_of(body, scaled_softmax, provider=REFERENCE).run(None, {"x": x})[0], wide_softmax(x))


def test_misuse_of_row_formulas_is_told() -> None:
    @ort.elementwise_op("com.acme", "Op")
    def elementwise(x: Scalar) -> Scalar:
        return x / row_sum(x)

    @ort.row_op("com.acme", "Op")
    def one_too_few(x: Scalar) -> tuple[Scalar, Scalar]:
        return (x,)

    body = "g (float[N,M] x) => (float[N,M] y) { y = com.acme.Op (x) }"
    with pytest.raises(OrtError, match="decorate it with row_op"):
        session_of(body, elementwise)
    with pytest.raises(OrtError, match="returned 1 formulas, it has 2 outputs"):
        session_of(body.replace("y = com", "y, z = com"), one_too_few)
    with pytest.raises(OrtError, match="at least one axis"):
        session_of("g (float x) => (float y) { y = com.acme.ScaledSoftmax (x) }", scaled_softmax)

    @ort.custom_op("com.acme", "Many")
    def many(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        return (x,)

    with pytest.raises(InvalidArgument, match="any number of outputs"):
        many.rows(lambda x: x)


def test_an_absent_input_in_the_middle_does_not_move_those_behind_it() -> None:
    @ort.elementwise_op("com.acme", "Blend")
    def blend(x: Scalar, scale: Scalar | None, bias: Scalar | None) -> Scalar:
        y = x if scale is None else x * scale
        return y if bias is None else y + bias

    @ort.row_op("com.acme", "BlendRows")
    def blend_rows(x: Scalar, scale: Scalar | None = None, bias: Scalar | None = None) -> Scalar:
        y = x - row_max(x) if scale is None else (x - row_max(x)) * scale
        return y if bias is None else y + bias

    x, b = floats(2, 3), floats(3, seed=1)
    for name, op, base in (("Blend", blend, x), ("BlendRows", blend_rows, x - x.max(-1, keepdims=True))):
        body = f"""g (float[N,M] x, float[M] b) => (float[N,M] y, float[N,M] z) {{
            y = com.acme.{name} (x, , b)  z = com.acme.{name} (x) }}"""
        y, z = session_of(body, op).run(None, {"x": x, "b": b})
        assert_close(y, base + b)
        assert_close(z, base)
        report = check_custom_op(op, [OpCase([x, None, b]), OpCase([x, b]), OpCase([x, b, b])])
        assert "loop kernel compiled by the CPU provider" in report.checked
