"""Products of float64 are compiled: exact for whole numbers, as near as float64 sums come, in groups of one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from run_levels import run_at_level

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
DOUBLE = TensorProto.DOUBLE
EPSILON = Fraction(1, 1 << 52)
Shape = Sequence[int | str]


pytestmark = pytest.mark.usefixtures("nothing_runs_by_numpy")


def model_of(
    nodes: Sequence[NodeProto], inputs: Mapping[str, Shape], constants: Mapping[str, np.ndarray] | None = None
) -> ModelProto:
    ins = [helper.make_tensor_value_info(name, DOUBLE, shape) for name, shape in inputs.items()]
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", ins, [helper.make_tensor_value_info("y", 0, None)], initializer=held)
    graph.output[0].ClearField("type")
    opsets = [helper.make_opsetid(*each) for each in (("", 20), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(model: ModelProto, threads: int = 2) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: ModelProto, threads: int = 2, **feeds: np.ndarray) -> np.ndarray:
    found: np.ndarray = session(model, threads).run(None, feeds)[0]
    return found


def whole(seed: int, *shape: int) -> np.ndarray:
    """Return whole numbers whose products add up without roundings."""
    return np.random.default_rng(seed).integers(-(1 << 20), 1 << 20, shape).astype(np.float64)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def product_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product of matrices of whole numbers as integers have it."""
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float64)


SIZES = [(1, 1, 1), (1, 40, 33), (5, 8, 1), (1, 9, 1), (7, 33, 17), (64, 130, 70), (300, 20, 3), (3, 0, 4), (0, 7, 5)]


def check_whole(m: int, k: int, n: int, threads: int = 2) -> None:
    """Check a product with a constant, one with an input, and those of transposed operands.

    A depth of 0 is one that only the run knows: models that declare it need no code.
    """
    x, w, c = whole(1, m, k), whole(2, k, n), whole(3, n)
    expected = product_of(x, w)
    depth = k or "K"
    tail = [N("Add", ["p", "c"], ["q"]), N("Relu", ["q"], ["y"])]
    constant = model_of([N("MatMul", ["x", "w"], ["p"]), *tail], {"x": ["N", k]}, {"w": w, "c": c})
    if k:
        np.testing.assert_array_equal(run(constant, threads, x=x), np.maximum(expected + c, 0))
    given = model_of([N("MatMul", ["x", "w"], ["y"])], {"x": ["N", depth], "w": [depth, n]})
    np.testing.assert_array_equal(run(given, threads, x=x, w=w), expected)
    turned = model_of([N("Gemm", ["x", "w"], ["y"], transA=1, transB=1)], {"x": [depth, "N"], "w": [n, depth]})
    np.testing.assert_array_equal(run(turned, threads, x=x.T.copy(), w=w.T.copy()), expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_of_whole_numbers_are_exact(sizes: tuple[int, int, int], threads: int) -> None:
    check_whole(*sizes, threads)


@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_nothing_beside_the_operands_is_touched(
    sizes: tuple[int, int, int], memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check_whole(*sizes)


@pytest.mark.parametrize("depth", [3, 40, 1000])
@pytest.mark.parametrize("columns", [1, 20])
def test_sums_are_as_near_as_float64_comes(depth: int, columns: int) -> None:
    x, w = random(1, 6, depth), random(2, depth, columns)
    found = run(model_of([N("MatMul", ["x", "w"], ["y"])], {"x": ["N", depth]}, {"w": w}), x=x)
    for i, j in np.ndindex(found.shape):
        terms = [Fraction(p) * Fraction(q) for p, q in zip(x[i].tolist(), w[:, j].tolist(), strict=True)]
        assert abs(Fraction(float(found[i, j])) - sum(terms)) <= depth * EPSILON * sum(map(abs, terms))


BIASES: list[tuple[int, ...]] = [(), (1,), (17,), (1, 17), (5, 1), (5, 17)]


@pytest.mark.parametrize("shape", BIASES, ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (-3.0, 0.0)])
def test_gemm_scales_and_takes_its_bias(shape: tuple[int, ...], alpha: float, beta: float) -> None:
    x, w, c = whole(1, 5, 30), whole(2, 17, 30), whole(3, *shape)
    node = N("Gemm", ["x", "w", "c"], ["y"], transB=1, alpha=alpha, beta=beta)
    found = run(model_of([node], {"x": [5, 30]}, {"w": w, "c": c}), x=x)
    np.testing.assert_array_equal(found, alpha * product_of(x, w.T) + beta * c)


BATCHES = [((4, 5, 9), (4, 9, 7)), ((2, 3, 5, 9), (9, 7)), ((2, 1, 5, 9), (1, 3, 9, 7)), ((3, 1, 24), (3, 24, 1))]


@pytest.mark.parametrize(("left", "right"), BATCHES, ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_batches_repeat_as_in_numpy(left: tuple[int, ...], right: tuple[int, ...], fused: bool) -> None:
    a, b = whole(1, *left), whole(2, *right)
    expected = product_of(a, b)
    if not fused:
        found = run(model_of([N("MatMul", ["a", "b"], ["y"])], {"a": left, "b": right}), a=a, b=b)
        np.testing.assert_array_equal(found, expected)
        return
    node = N("FusedMatMul", ["a", "b"], ["y"], transA=1, transB=1, alpha=0.5, domain="com.microsoft")
    a, b = (np.swapaxes(each, -1, -2).copy() for each in (a, b))
    found = run(model_of([node], {"a": a.shape, "b": b.shape}), a=a, b=b)
    np.testing.assert_array_equal(found, expected / 2)


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "bij,bkj->bik", "bij,jk->kbi", "ij,kj->", "bi,bi->b", "bhij,bhjk->bihk"]
)
def test_einsum_of_whole_numbers_is_exact(equation: str) -> None:
    sizes = dict(zip("bhijk", (3, 2, 5, 9, 17), strict=True))
    a, b = (whole(i, *(sizes[letter] for letter in term)) for i, term in enumerate(equation.split("->")[0].split(",")))
    found = run(model_of([N("Einsum", ["a", "b"], ["y"], equation=equation)], {"a": a.shape, "b": b.shape}), a=a, b=b)
    np.testing.assert_array_equal(found, np.einsum(equation, a.astype(np.int64), b.astype(np.int64)))


@pytest.mark.parametrize("columns", [1, 20])
def test_nan_and_infinity_spread_as_in_numpy(columns: int) -> None:
    x, w = random(1, 30, 40), random(2, 40, columns)
    x[3, 7], x[20, 1], x[9, 9], w[8, 0] = np.nan, np.inf, -np.inf, np.inf
    found = run(model_of([N("MatMul", ["x", "w"], ["y"])], {"x": ["N", 40]}, {"w": w}), x=x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found, x @ w, rtol=0, atol=1e-12)


def test_results_are_the_same_with_any_number_of_threads() -> None:
    x, w, v = random(1, 200, 500), random(2, 500, 90), random(3, 90, 1)
    nodes = [N("MatMul", ["x", "w"], ["p"]), N("Relu", ["p"], ["q"]), N("MatMul", ["q", "v"], ["y"])]
    model = model_of(nodes, {"x": ["N", 500]}, {"w": w, "v": v})
    first, *others = (run(model, threads, x=x).tobytes() for threads in (1, 2, 4))
    assert others == [first, first]


def test_a_network_of_float64_is_one_program(partitions: list[CpuPartition]) -> None:
    """As scikit-learn's are exported: features without their means, layers, and the label of the largest score."""
    weights = {"w": whole(1, 30, 16), "v": whole(2, 16, 5), "b": whole(3, 16), "m": whole(4, 30)}
    nodes = [
        N("Sub", ["x", "m"], ["s"]), N("MatMul", ["s", "w"], ["p"]), N("Add", ["p", "b"], ["q"]),
        N("Relu", ["q"], ["r"]), N("Gemm", ["r", "v"], ["t"]), N("ArgMax", ["t"], ["y"], axis=1, keepdims=0),
    ]  # fmt: skip
    x = whole(5, 40, 30)
    found = run(model_of(nodes, {"x": ["N", 30]}, weights), x=x)
    hidden = np.maximum(product_of(x - weights["m"], weights["w"]) + weights["b"], 0)
    np.testing.assert_array_equal(found, (hidden.astype(object) @ weights["v"].astype(object)).argmax(axis=1))
    assert [len(each.native_programs) for each in partitions] == [1]


def test_a_product_of_float64_may_be_cast_behind() -> None:
    x, w = whole(1, 9, 30), whole(2, 30, 20)
    nodes = [N("MatMul", ["x", "w"], ["p"]), N("Cast", ["p"], ["y"], to=TensorProto.FLOAT)]
    found = run(model_of(nodes, {"x": ["N", 30]}, {"w": w}), x=x)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, product_of(x, w).astype(np.float32))


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_linear_models_sum_float64_features_in_float64(targets: int, transform: str) -> None:
    x = random(1, 50, 20) * 1e6
    weights, shift = random(2, targets, 20).astype(np.float32), random(3, targets).astype(np.float32)
    node = N(
        "LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=weights.ravel().tolist(), targets=targets,
        intercepts=shift.tolist(), post_transform=transform,
    )  # fmt: skip
    model = model_of([node], {"x": ["N", 20]})
    found = run(model, x=x)
    if transform == "NONE":
        expected = x @ weights.T.astype(np.float64) + shift
        assert found.dtype == np.float32
        np.testing.assert_array_max_ulp(found, expected.astype(np.float32), 1)
    elif targets > 1:
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_linear_classifiers_label_float64_features() -> None:
    x = random(1, 50, 20)
    weights, shift = random(2, 3, 20).astype(np.float32), random(3, 3).astype(np.float32)
    node = N(
        "LinearClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", coefficients=weights.ravel().tolist(),
        intercepts=shift.tolist(), classlabels_ints=[4, 2, 7], post_transform="SOFTMAX",
    )  # fmt: skip
    found = run(model_of([node], {"x": ["N", 20]}), x=x)
    best = (x @ weights.T.astype(np.float64) + shift).argmax(axis=1)
    np.testing.assert_array_equal(found, np.array([4, 2, 7])[best])


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
def test_code_of_each_level_gives_exact_sums(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in SIZES:
        check_whole(*each)
