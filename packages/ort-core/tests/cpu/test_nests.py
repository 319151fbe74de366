"""Elementwise nests and row nests against float64 numpy: broadcasts, strides, odd and empty sizes, NaN, threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from kernel_calls import TARGETS, elementwise, rows

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, integer, module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.levels import levels
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    DENSE,
    STRIDED,
    ElementwiseNest,
    NestInput,
    elementwise_kernel,
)
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.cpu.codegen.nests.row_nests import RowNest, row_kernel
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import (
    RowPass,
    RowReduction,
    Scalar,
    binary,
    cast,
    element,
    exp,
    fma,
    maximum,
    meaning_of,
    minimum,
    row_value,
    select,
    unary,
)

F32, I64, I32, BOOL = DataType.FLOAT, DataType.INT64, DataType.INT32, DataType.BOOL
SHAPES = [(), (1,), (7,), (0,), (16, 33), (3, 0), (0, 5), (5, 1, 19), (2, 3, 4, 17), (1, 9000)]


@pytest.fixture(scope="module", params=[1, 2])
def pool(request: pytest.FixtureRequest) -> Iterator[ThreadPool]:
    made = ThreadPool(request.param)
    yield made
    made.close()


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nest_agrees_with_float64_for_every_shape(shape: tuple[int, ...], target: str, pool: ThreadPool) -> None:
    a, b = random(1, *shape), random(2, *shape[-1:])
    x, y = element(0, F32), element(1, F32)
    found = elementwise(maximum(fma(x, y, 0.5), -1.0) / (x * x + 1.0), shape, [a, b], pool, TARGETS[target]())
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    expected = np.maximum(wide_a * wide_b + 0.5, -1.0) / (wide_a * wide_a + 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("a_shape", "b_shape"), [((4, 1, 17), (1, 5, 1)), ((1,), (3, 18)), ((6, 1), (1, 40))], ids=str)
def test_nest_reads_operands_that_broadcast(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], target: str, pool: ThreadPool
) -> None:
    a, b = random(1, *a_shape), random(2, *b_shape)
    shape = np.broadcast_shapes(a_shape, b_shape)
    found = elementwise(element(0, F32) - element(1, F32), shape, [a, b], pool, TARGETS[target]())
    np.testing.assert_array_equal(found, a - b)


@pytest.mark.parametrize("target", TARGETS)
def test_nest_reads_transposed_and_strided_operands(target: str, pool: ThreadPool) -> None:
    turned, every_third = random(1, 37, 21).T, random(2, 21, 111)[:, ::3]
    found = elementwise(
        element(0, F32) + element(1, F32), (21, 37), [turned, every_third], pool, TARGETS[target]()
    )  # fmt: skip
    np.testing.assert_array_equal(found, turned + every_third)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["min", "max"])
def test_minimum_and_maximum_give_nan_when_either_side_is_nan(kind: str, target: str, pool: ThreadPool) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0, 1.5], np.float32)
    a, b = (v.reshape(-1).copy() for v in np.meshgrid(values, values))
    function, truth = (minimum, np.minimum) if kind == "min" else (maximum, np.maximum)
    found = elementwise(function(element(0, F32), element(1, F32)), a.shape, [a, b], pool, TARGETS[target]())
    np.testing.assert_array_equal(found, truth(a, b))
    bound = elementwise(function(element(0, F32), float("nan")), a.shape, [a], pool, TARGETS[target]())
    assert np.isnan(bound).all(), "a NaN constant is a side, too"


def test_bool_is_stored_as_a_byte_of_0_or_1(pool: ThreadPool) -> None:
    a, flags = random(1, 45), np.arange(45) % 3 == 0
    x, flag = element(0, F32), element(1, BOOL)
    found = elementwise(binary("and", binary("gt", x, 0.0), flag), a.shape, [a, flags], pool, TARGETS["host"]())
    np.testing.assert_array_equal(found.view(np.uint8), ((a > 0) & flags).view(np.uint8))
    chosen = elementwise(select(flag, x, -x), a.shape, [a, flags], pool, TARGETS["host"]())
    np.testing.assert_array_equal(chosen, np.where(flags, a, -a))


@pytest.mark.parametrize("dtype", [I32, I64], ids=["int32", "int64"])
def test_integers_wrap_around(dtype: DataType, pool: ThreadPool) -> None:
    numpy_type = np.int32 if dtype is I32 else np.int64
    ends = np.iinfo(numpy_type)
    a = np.array([ends.max, ends.min, -1, 0, 7] * 7, numpy_type)
    x = element(0, dtype)
    with np.errstate(over="ignore"):
        expected = np.abs(a * a + a) - numpy_type(ends.max)
    found = elementwise(unary("abs", x * x + x) - ends.max, a.shape, [a], pool, TARGETS["host"]())
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("to", "least"), [(I32, -(2**31)), (I64, -(2**63))], ids=["int32", "int64"])
def test_cast_of_a_float_out_of_range_gives_the_least_integer(to: DataType, least: int, pool: ThreadPool) -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 2.0**63, 1.9, -1.9, -0.0], np.float32)
    meaning = meaning_of("", "Cast", [element(0, F32)], {"to": to.value})
    assert isinstance(meaning, Scalar)
    found = elementwise(meaning, a.shape, [a], pool, TARGETS["host"]())
    assert found.tolist() == [least] * 6 + [1, -1, 0]


def test_cast_between_integers_bools_and_floats_is_numpys(pool: ThreadPool) -> None:
    a = np.array([2**40 + 5, -(2**33) - 1, 0, 1] * 5, np.int64)
    for to, numpy_type in ((F32, np.float32), (I32, np.int32)):
        found = elementwise(cast(element(0, I64), to), a.shape, [a], pool, TARGETS["host"]())
        np.testing.assert_array_equal(found, a.astype(numpy_type))
    flags = a > 0
    for to, numpy_type in ((F32, np.float32), (I32, np.int32), (I64, np.int64)):
        found = elementwise(cast(element(0, BOOL), to), a.shape, [flags], pool, TARGETS["host"]())
        np.testing.assert_array_equal(found, flags.astype(numpy_type))


def softmax_nest(rank: int) -> RowNest:
    x, out = element(0, F32), element(1, F32)
    e = exp(x - row_value(1))
    passes = (
        RowPass(reductions=(RowReduction("max", x, 1),)),
        RowPass(((0, e),), (RowReduction("sum", e, 2),), ((3, 1.0 / row_value(2)),)),
        RowPass(((0, out * row_value(3)),)),
    )
    return RowNest(rank, (NestInput(F32, DENSE),), (F32,), passes)


ROW_SHAPES = [(4, 1), (3, 16), (2, 5, 64), (5, 67), (1, 1000), (3, 0), (0, 4), (7, 3, 31)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", ROW_SHAPES, ids=str)
def test_softmax_of_rows_agrees_with_float64(shape: tuple[int, ...], target: str, pool: ThreadPool) -> None:
    x = random(3, *shape) * 20
    out = np.full(shape, np.nan, np.float32)
    rows(softmax_nest(len(shape)), [out], [x], shape, pool, TARGETS[target]())
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(out, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("length", [0, 1, 15, 16, 64, 65, 1000])
def test_reduction_of_rows_agrees_with_float64(kind: str, length: int, target: str, pool: ThreadPool) -> None:
    x, scale = random(4, 5, length), random(5, 5, 1)
    nest = RowNest(
        2, (NestInput(F32, DENSE), NestInput(F32, BROADCAST)), (),
        (RowPass((), (RowReduction(kind, element(0, F32) * element(1, F32), 1),)),), (1,),
    )  # fmt: skip
    out = np.empty(5, np.float32)
    rows(nest, [out], [x, scale], (5, length), pool, TARGETS[target]())
    wide = x.astype(np.float64) * scale
    initial = {"sum": 0.0, "max": -np.inf, "min": np.inf}[kind]
    expected = getattr(wide, kind)(-1, initial=initial)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("place", [0, 17, 63, 66])
def test_reduction_of_a_row_with_nan_is_nan(kind: str, place: int, pool: ThreadPool) -> None:
    x = random(6, 2, 67)
    x[1, place] = np.nan
    out = np.empty(2, np.float32)
    nest = RowNest(2, (NestInput(F32, DENSE),), (), (RowPass((), (RowReduction(kind, element(0, F32), 1),)),), (1,))
    rows(nest, [out], [x], x.shape, pool, TARGETS["host"]())
    assert out[0] == getattr(x[0], kind)()
    assert np.isnan(out[1])


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx14.0"])
def test_nests_compile_for_neon(triple: str) -> None:
    target = target_of(triple, "generic", "+neon")
    inputs = tuple(NestInput(F32, kind) for kind in (DENSE, BROADCAST, STRIDED))
    expression = exp(element(0, F32) * element(1, F32)) + element(2, F32)
    kernels = [
        elementwise_kernel(ElementwiseNest(3, inputs, ((expression, F32),)), target),
        row_kernel(softmax_nest(2), target),
    ]
    text = assembly(module_text([f for deferred in kernels for f in deferred.generate(deferred.name)]), target)
    assert "fmla" in text or "fmadd" in text
    assert ".4s" in text, "no vectors of four"


def test_of_many_dimensions_no_counters_are_kept() -> None:
    def counters(dimensions: int) -> int:
        emitter = Emitter("walk", [("ptr", "sizes")])
        sizes = [emitter.load("i64", emitter.element(emitter.parameter("sizes"), place)) for place in range(dimensions)]
        with each_place(emitter, integer(0), integer(1000), sizes, "place") as (number, indices):
            emitter.store(number, emitter.element(emitter.parameter("sizes"), indices[-1]))
        return module_text([emitter]).count("alloca")

    few = counters(4)
    assert few > counters(64), "LLVM takes seconds to keep the indices of 64 dimensions in registers"


@pytest.mark.parametrize(("level", "is_masked"), [("x86-64-v4", True), ("x86-64-v3", True), ("x86-64-v2", False)])
def test_few_passes_compile_nests_that_take_vectors_alone(level: str, is_masked: bool) -> None:
    target = next(each for each in levels() if each.cpu == level)
    x, y, of_row = element(0, F32), element(1, F32), element(2, F32)
    inputs = tuple(NestInput(F32, kind) for kind in (DENSE, DENSE, BROADCAST))

    def is_vectorized(expression: Scalar, dtype: DataType = F32) -> bool:
        return elementwise_kernel(ElementwiseNest(1, inputs, ((expression, dtype),)), target).is_vectorized

    assert is_vectorized(x), "halves take the rest of a copy"
    assert is_vectorized(exp(x) * of_row + y) is is_masked
    assert row_kernel(softmax_nest(2), target).is_vectorized is is_masked
    assert not is_vectorized(exp(of_row) * x), "what is the same for all elements of a row is not taken out of the loop"
    assert not is_vectorized(cast(x, I64), I64), "elements of two sizes have no mask"
