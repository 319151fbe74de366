"""Products with vectors, and rows that lie in another order than they are counted, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_groups import model_of, random, run, session

from ort_core.cpu.lowering.views import tallest_last
from ort_core.cpu.program.sizes import evaluate
from ort_core.plugin.ir import SymbolicDim

N = helper.make_node
FLOAT = TensorProto.FLOAT


pytestmark = pytest.mark.usefixtures("nothing_runs_by_numpy")


def check_near(found: object, expected: np.ndarray) -> None:
    assert isinstance(found, list), found
    assert found[0].shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5 * scale)


SHAPES = (  # of both sides: static, of open batches, repeated ones, empty ones
    ((5, 40), (40, 1)), ((1, 40), (40, 1)), ((3, 5, 19), (3, 19, 1)), ((3, 5, 19), (19, 1)), ((5, 19), (3, 19, 1)),
    ((3, 1, 24), (3, 24, 1)), ((3, 5, 4), (3, 4, 1)),
)  # fmt: skip
CASES = [(*each, is_open) for each in SHAPES for is_open in (False, True)]
CASES.append(((2, 1, 5, 33), (1, 3, 33, 1), False))
CASES.extend([((0, 5, 24), (0, 24, 1), True), ((3, 5, 0), (3, 0, 1), True)])


@pytest.mark.parametrize(("left", "right", "is_open"), CASES)
def test_products_with_one_column_equal_numpy(left: tuple[int, ...], right: tuple[int, ...], is_open: bool) -> None:
    batch = ["batch"] * (len(left) - 2)  # which batches repeat must be known when it is compiled
    shapes = ([*batch, "rows", "depth"], [*["batch"] * (len(right) - 2), "deep", 1])
    inputs = {"x": (FLOAT, shapes[0] if is_open else left), "z": (FLOAT, shapes[1] if is_open else right)}
    model = model_of([N("MatMul", ["x", "z"], ["p"]), N("Relu", ["p"], ["y"])], inputs, {"y": FLOAT})
    x, z = random(1, *left), random(2, *right)
    expected = np.maximum(np.matmul(x.astype(np.float64), z.astype(np.float64)), 0)
    check_near(run(session(model, "CPUExecutionProvider"), {"x": x, "z": z}), expected)


@pytest.mark.parametrize("columns", [1, 7, 40])
def test_one_row_with_transposed_matrices_equals_numpy(columns: int) -> None:
    inputs = {"x": (FLOAT, ["B", 1, 24]), "z": (FLOAT, ["B", columns, 24])}
    nodes = [N("Transpose", ["z"], ["t"], perm=[0, 2, 1]), N("MatMul", ["x", "t"], ["y"])]
    x, z = random(1, 3, 1, 24), random(2, 3, columns, 24)
    expected = np.matmul(x.astype(np.float64), z.astype(np.float64).transpose(0, 2, 1))
    check_near(run(session(model_of(nodes, inputs, {"y": FLOAT}), "CPUExecutionProvider"), {"x": x, "z": z}), expected)


@pytest.mark.parametrize("flipped", [0, 1])
@pytest.mark.parametrize("bias", [(), (1,), (1, 1), (6, 1)])
def test_gemm_of_one_column_takes_its_bias(bias: tuple[int, ...], flipped: int) -> None:
    weights = random(3, 1, 40) if flipped else random(3, 40, 1)
    constants = {"w": weights, "c": random(4, *bias)}
    node = N("Gemm", ["x", "w", "c"], ["a"], transB=flipped, alpha=0.5, beta=2.0)
    model = model_of([node, N("Sigmoid", ["a"], ["y"])], {"x": (FLOAT, [6, 40])}, {"y": FLOAT}, constants)
    x = random(1, 6, 40)
    sums = 0.5 * x.astype(np.float64) @ weights.reshape(40, 1) + 2.0 * constants["c"]
    check_near(run(session(model, "CPUExecutionProvider"), {"x": x}), 1 / (1 + np.exp(-sums)))


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("order", [(1, 0, 2), (0, 1, 2)])
def test_rows_may_lie_in_any_order(order: tuple[int, ...], batch: int) -> None:
    constants = {"w": random(3, 16, 33), "c": random(4, 33)}
    nodes = [N("Transpose", ["x"], ["t"], perm=order), N("MatMul", ["t", "w"], ["p"]), N("Add", ["p", "c"], ["y"])]
    model = model_of(nodes, {"x": (FLOAT, ["B", "S", 16])}, {"y": FLOAT}, constants)
    compiled = session(model, "CPUExecutionProvider")
    for length in (1, 20, 0):
        x = random(1, batch, length, 16)
        expected = x.transpose(order).astype(np.float64) @ constants["w"] + constants["c"]
        check_near(run(compiled, {"x": x}), expected)


VECTORS = (  # as numpy takes them: a row in front, a column behind
    ((40,), (40,)), ((5, 40), (40,)), ((40,), (40, 7)), ((3, 5, 40), (40,)), ((40,), (3, 40, 7)), ((2, 3, 5, 4), (4,)),
    ((4,), (4, 3)), ((1,), (1,)),
)  # fmt: skip
KINDS = [(*each, kind) for each in VECTORS for kind in ("fed", "constant", "open")]
KINDS.extend([((0, 40), (40,), "open"), ((5, 0), (0,), "open")])  # a model that declares no elements needs no code


@pytest.mark.parametrize(("left", "right", "kind"), KINDS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operands_of_one_axis_are_a_row_or_a_column(
    left: tuple[int, ...], right: tuple[int, ...], kind: str, dtype: type
) -> None:
    generator, element = np.random.default_rng(1), TensorProto.FLOAT if dtype is np.float32 else TensorProto.DOUBLE
    x, w = (generator.integers(-30, 30, shape).astype(dtype) for shape in (left, right))
    shapes = {"x": left, "w": right}
    if kind == "open":
        depth = "K" if len(right) == 1 else right[-2]
        rows = (*left[:-2], "N", depth) if len(left) > 1 else (depth,)
        shapes = {"x": rows, "w": (depth,) if len(right) == 1 else right}
    constants = {"w": w} if kind == "constant" else {}
    fed = {"x": x} if kind == "constant" else {"x": x, "w": w}
    inputs = {name: (element, shapes[name]) for name in fed}
    nodes = [N("MatMul", ["x", "w"], ["p"]), N("Neg", ["p"], ["y"])]
    compiled = session(model_of(nodes, inputs, {"y": element}, constants), "CPUExecutionProvider")
    (found,) = run(compiled, fed)
    assert (found.shape, found.dtype) == (np.shape(x @ w), dtype)
    np.testing.assert_array_equal(found, -(x @ w))


@pytest.mark.parametrize(("b", "s"), [(1, 9), (9, 1), (4, 4), (0, 3)])
def test_the_largest_of_open_sizes_comes_last_with_its_strides(b: int, s: int) -> None:
    batch, length = SymbolicDim.named("B"), SymbolicDim.named("S")
    sizes, (strides,) = tallest_last([5, length, batch], [[1000, 7, length * 7]])
    found = [evaluate(each, {"B": b, "S": s}) for each in sizes]
    steps = [evaluate(each, {"B": b, "S": s}) for each in strides]
    assert found[-1] == max(5, b, s)
    assert sorted(zip(found, steps, strict=True)) == sorted([(5, 1000), (s, 7), (b, s * 7)])


def test_known_sizes_are_ordered_without_formulas() -> None:
    assert tallest_last([99, 1], [[4, 5]]) == ([1, 99], [[5, 4]])
    assert tallest_last([2, 7], [[4, 5]]) == ([2, 7], [[4, 5]])
