"""Users' operators with a formula: claimed, fused like built-in ones, right against numpy on the emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest
from acme_formulas import OPERATORS
from emulated_gpu import EmulatedGpu
from emulated_provider import session_of

import ort_core as ort
from ort_core import tolerances
from ort_core.plugin import Rejection
from ort_core.plugin.loops import Scalar, row_max, row_sum

LIMIT = tolerances.tolerance("approximate", np.dtype(np.float32))
RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def check(body: str, feeds: dict[str, np.ndarray], *expected: np.ndarray) -> None:
    session = session_of(body, operators=OPERATORS)
    for _ in range(3):  # launched one by one, then replayed from a captured graph
        found = session.run(None, feeds)
        for each, wanted in zip(found, expected, strict=True):
            assert each.shape == wanted.shape
            np.testing.assert_allclose(each, wanted, LIMIT.relative, LIMIT.absolute)


def mish(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide * np.tanh(np.log1p(np.exp(wide)))


def softmax(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    e = np.exp((x.astype(np.float64) - x.max(-1, keepdims=True)) * scale)
    return e / e.sum(-1, keepdims=True)


def test_a_formula_between_built_in_operators_is_one_kernel_with_them(gpu: EmulatedGpu) -> None:
    x, b = normal(5, 7), normal(7)
    body = "g (float[N,7] x, float[7] b) => (float[N,7] y) { a = Add(x, b) m = com.acme.Mish(a) y = Neg(m) }"
    check(body, {"x": x, "b": b}, -mish(x + b))
    gpu.launches = 0
    session_of(body, operators=OPERATORS, options={"enable_cuda_graph": "0"}).run(None, {"x": x, "b": b})
    assert gpu.launches == 1


def test_a_formula_reads_strided_and_broadcast_inputs(gpu: EmulatedGpu) -> None:
    x, g = normal(3, 4, 5), normal(4, 1)
    body = (
        "g (float[3,4,5] x, float[4,1] z) => (float[3,5,4] y)"
        " { m = com.acme.Gated(x, z) y = Transpose<perm = [0, 2, 1]>(m) }"
    )
    check(body, {"x": x, "z": g}, np.where(g > 0, x, x * 0.5).transpose(0, 2, 1))


def test_attributes_and_absent_inputs_reach_a_formula(gpu: EmulatedGpu) -> None:
    x, b = normal(3, 4), normal(4)
    body = "g (float[3,4] x, float[4] b) => (float[3,4] y) { y = com.acme.Gated<slope: float = 0.25>(x, , b) }"
    check(body, {"x": x, "b": b}, np.where(x > 0, x, x * np.float32(0.25)) + b)


@pytest.mark.parametrize("columns", [1, 5, 128, 129, 700])
def test_a_row_formula_is_computed_with_what_stands_in_front_of_it(gpu: EmulatedGpu, columns: int) -> None:
    x = normal(3, columns)
    body = (
        f"g (float[N,{columns}] x) => (float[N,{columns}] y)"
        " { a = Neg(x) y = com.acme.ScaledSoftmax<scale: float = 2.0>(a) }"
    )
    check(body, {"x": x}, softmax(-x, 2.0))
    gpu.launches = 0
    session_of(body, operators=OPERATORS, options={"enable_cuda_graph": "0"}).run(None, {"x": x})
    assert gpu.launches == 1


def centered_norm(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True)
    return (wide - mean) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * w, mean


def test_row_formulas_of_two_outputs_are_one_kernel(gpu: EmulatedGpu) -> None:
    x, w = normal(2, 3, 40), normal(40)
    body = (
        "g (float[2,N,40] x, float[40] w) => (float[2,N,40] y, float[2,N,1] m) { y, m = com.acme.CenteredNorm(x, w) }"
    )
    check(body, {"x": x, "w": w}, *centered_norm(x, w))


def test_an_output_of_rows_that_nobody_reads_is_not_computed(gpu: EmulatedGpu) -> None:
    x, w = normal(4, 40), normal(40)
    body = "g (float[N,40] x, float[40] w) => (float[N,40] y) { y = com.acme.CenteredNorm(x, w) }"
    check(body, {"x": x, "w": w}, centered_norm(x, w)[0])


def test_rows_are_read_by_strides(gpu: EmulatedGpu) -> None:
    x = normal(3, 6, 5)
    body = "g (float[3,6,5] x) => (float[5,3,6] y) { t = Transpose<perm = [2, 0, 1]>(x) y = com.acme.ScaledSoftmax(t) }"
    check(body, {"x": x}, softmax(x.transpose(2, 0, 1)))


def test_rows_of_constants_have_the_shape_of_their_inputs(gpu: EmulatedGpu) -> None:
    w = normal(3, 4)
    body = "g (float[3,4] w) => (float[3,4] y) <float two = {2.0}> { y = com.acme.Weighed(two, w) }"
    check(body, {"w": w}, np.broadcast_to(2 * w.sum(-1, keepdims=True), (3, 4)))


def test_rows_computed_of_16_bit_floats_are_read_as_float32(gpu: EmulatedGpu) -> None:
    x = normal(3, 9).astype(np.float16)
    body = "g (float16[N,9] x) => (float[N,9] y) { c = Cast<to = 1>(x) y = com.acme.ScaledSoftmax(c) }"
    check(body, {"x": x}, softmax(x.astype(np.float32)))


def test_no_rows_and_no_columns_give_what_numpy_gives(gpu: EmulatedGpu) -> None:
    body = "g (float[N,M] x, float[M] w) => (float[N,M] y) { y = com.acme.Weighed(x, w) }"
    for shape in ((0, 4), (3, 0)):
        check(body, {"x": np.zeros(shape, "f4"), "w": np.ones(shape[1], "f4")}, np.zeros(shape, "f4"))


def _fails(x: Scalar) -> Scalar:
    return x.missing


def _says_no(x: Scalar) -> Scalar | Rejection:
    return Rejection("not on Sundays")


def _other_type(x: Scalar) -> Scalar:
    return x > 0.0


@pytest.mark.parametrize(
    ("formula", "words"),
    [(_says_no, "not on Sundays"), (_other_type, "gives bool, expected float")],
)
def test_a_formula_that_is_not_generated_is_refused_with_its_reason(gpu: EmulatedGpu, formula, words: str) -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: np.ndarray) -> np.ndarray:
        return x

    op.loops(formula)
    assert words in _explained("g (float[N] x) => (float[N] y) { y = com.acme.Op(x) }", op)


def test_a_formula_that_fails_is_told_with_the_line_of_the_user(gpu: EmulatedGpu) -> None:
    op = ort.elementwise_op("com.acme", "Op")(_fails)
    with pytest.raises(ort.OrtError, match=r"(?s)has no attribute 'missing'.*return x\.missing"):
        session_of("g (float[N] x) => (float[N] y) { y = com.acme.Op(x) }", operators=[op])


def test_element_types_that_are_not_printed_are_refused(gpu: EmulatedGpu) -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: np.ndarray) -> np.ndarray:
        return x

    op.loops(lambda x: x + 1)
    for text, words in (("float16", "elements of type float16"), ("uint16", "elements of type uint16")):
        assert words in _explained(f"g ({text}[N] x) => ({text}[N] y) {{ y = com.acme.Op(x) }}", op)


def test_reductions_of_a_row_of_bytes_are_those_of_numpy(gpu: EmulatedGpu) -> None:
    @ort.row_op("com.acme", "Op", dtypes=(np.int8,))
    def op(x: Scalar) -> tuple[Scalar, Scalar]:
        return row_sum(x), row_max(x)

    session = session_of("g (int8[N,200] x) => (int8[N,1] y, int8[N,1] z) { y, z = com.acme.Op(x) }", operators=[op])
    x = np.random.default_rng(0).integers(-128, 127, (3, 200)).astype(np.int8)
    total, largest = session.run(None, {"x": x})
    np.testing.assert_array_equal(total, x.sum(-1, keepdims=True, dtype=np.int8))
    np.testing.assert_array_equal(largest, x.max(-1, keepdims=True))


def test_an_operator_with_a_numpy_kernel_alone_is_left_to_the_cpu(gpu: EmulatedGpu) -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: np.ndarray) -> np.ndarray:
        return x + 1

    body = "g (float[N] x) => (float[N] y) { t = com.acme.Op(x) y = Neg(t) }"
    assert "Op has neither a formula nor a CUDA kernel" in _explained(body, op)
    session = session_of(body, strict=False, operators=[op])
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(3, "f4")})[0], np.full(3, -2, "f4"))


def _explained(body: str, op: ort.CustomOp) -> str:
    return str(session_of(body, strict=False, operators=[op]).explain())
