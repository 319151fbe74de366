"""Interval analysis of integer values."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.ir.types import DataType
from ort_core.ops.value_range import MAX_SIZE, ValueRanges, type_interval


def ranges(infer, graph: str) -> tuple[ValueRanges, dict[str, object]]:
    model, report = infer(graph)
    values = {v.name: v for node in model.graph for v in node.present_outputs()}
    values |= {v.name: v for v in model.graph.inputs}
    return ValueRanges(report.values), values


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("y = Shape(x)", (0, MAX_SIZE)),
        ("y = Shape<start = 1>(x)", (4, 6)),
        ("y = Size(x)", (0, MAX_SIZE)),
        ("y = ArgMax<axis = 2>(x)", (0, 5)),
        ("k = Constant<value_ints = [3]>() v, y = TopK(x, k)", (0, 5)),
        ("y = Constant<value_ints = [3, -2, 9]>()", (-2, 9)),
        ("b = Cast<to = 9>(x) y = Cast<to = 7>(b)", (0, 1)),
        ("c = Cast<to = 2>(x) d = Cast<to = 7>(c) k = Constant<value_int = 10>() y = Sub(d, k)", (-10, 245)),
        ("c = Cast<to = 3>(x) d = Cast<to = 7>(c) y = Mul(d, d)", (-128 * 127, 128 * 128)),
        ("c = Cast<to = 3>(x) d = Cast<to = 7>(c) y = Abs(d)", (0, 128)),
        ("c = Cast<to = 3>(x) d = Cast<to = 7>(c) k = Constant<value_int = 10>() y = Mod(d, k)", (0, 9)),
        ("y = Cast<to = 7>(x)", type_interval(DataType.INT64)),
        ("k = Constant<value_ints = [4]>() y = ConstantOfShape<value = int64[1] {7}>(k)", (7, 7)),
        ("a = ArgMax<axis = 0>(x) c = Cast<to = 3>(a) d = Cast<to = 7>(c) y = ReduceSum(d)", (-128 * 24, 127 * 24)),
        ("c = Cast<to = 3>(x) d = Cast<to = 7>(c) y = ReduceSum(d)", type_interval(DataType.INT64)),
    ],
)
def test_bounds_follow_from_sizes_constants_and_arithmetic(infer, call, expected):
    found, values = ranges(infer, f"g (float[n, 4, 6] x) => (int64[?] y) {{ {call} }}")
    assert found.value_range(values["y"]) == expected


def test_float_tensors_have_no_integer_bounds(infer):
    found, values = ranges(infer, "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    assert found.value_range(values["y"]) is None


def test_sum_that_may_wrap_around_has_the_bounds_of_its_type(infer):
    found, values = ranges(infer, "g (int32[n] x) => (int32[n] y) { y = Add(x, x) }")
    assert found.value_range(values["y"]) == type_interval(DataType.INT32)


def test_fits_tells_whether_int64_may_become_int32(infer):
    found, values = ranges(infer, "g (float[n, 9] x, int64[n] z) => (int64[?] y) { y = ArgMin<axis = 1>(x) }")
    assert found.fits(values["y"], DataType.INT32)
    assert not found.fits(values["z"], DataType.INT32)


def test_scatter_that_adds_is_not_bounded_by_its_inputs(infer):
    text = """g (int8[4] x, int64[4] i) => (int64[4] y) {{
        d = Cast<to = 7>(x)
        y = ScatterElements<reduction = "{}">(d, i, d)
    }}"""
    for reduction, expected in (("none", (-128, 127)), ("add", type_interval(DataType.INT64))):
        found, values = ranges(infer, text.format(reduction))
        assert found.value_range(values["y"]) == expected


def test_sums_are_bounded_by_the_bounds_of_sizes(infer):
    model, report = infer("g (bool[n, 4] x) => (int64[?] y) { c = Cast<to = 7>(x) y = ReduceSum(c) }")
    (y,) = model.graph.outputs
    assert ValueRanges(report.values, sizes={"n": (0, 10)}).value_range(y) == (0, 40)


def test_bounds_contain_what_integer_arithmetic_gives(infer):
    generator = np.random.default_rng(7)
    for _ in range(30):
        low, high = sorted(generator.integers(-50, 50, 2).tolist())
        divisor = int(generator.integers(1, 9)) * int(generator.choice([-1, 1]))
        found, values = ranges(
            infer,
            f"""g (int64[n] x) => (int64[n] y) {{
                l = Constant<value_int = {low}>() h = Constant<value_int = {high}>()
                k = Constant<value_int = {divisor}>()
                c = Clip(x, l, h) q = Div(c, k) r = Mod(c, k) m = Mul(q, r) y = Max(m, c)
            }}""",
        )
        x = np.arange(low, high + 1)
        quotient, remainder = np.trunc(x / divisor).astype(int), x % divisor
        for name, real in (("q", quotient), ("r", remainder), ("m", quotient * remainder)):
            interval = found.value_range(values[name])
            assert interval[0] <= real.min()
            assert real.max() <= interval[1]
