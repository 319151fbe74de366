"""Sizes that go through types of few bits wrap around or round, as the kernels do: no shape follows from them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ort_core as ort
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.types import DataType
from ort_core.ops.symbolic_values import make_value
from ort_core.ops.value_range import in_range

n = SymbolicDim.named("n")
SLICES = (
    'model <ir_version: 9, opset_import: ["" : 17]> g (float[N] x) => (float[A] rest, float[B] first)'
    " <int64[1] o = {{0}}, int64[1] k = {{{number}}}, int64[1] end = {{99999}}> {{ s = Shape(x)"
    " size = Cast<to = {to}>(s) number = Cast<to = {to}>(k) made = {op}(size, number) place = Cast<to = 7>(made)"
    " rest = Slice(x, place, end, o) first = Slice(x, o, place, o) }}"
)
NARROW = ("UINT8", "INT8", "UINT16", "INT16", "FLOAT16", "BFLOAT16")


def sliced(size: int, dtype: DataType, op: str, number: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return what a session and numpy make of slices that begin and end at a number of a type."""
    text = SLICES.format(to=int(dtype), op=op, number=number).removeprefix("model ")
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    x = np.arange(size, dtype=np.float32)
    with np.errstate(all="ignore"):
        of_size, other = (np.array(each).astype(dtype.numpy) for each in (size, number))
        place = int({"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](of_size, other))
    return session.run(None, {"x": x}), [x[place:], x[:place]]


@pytest.mark.parametrize("size", [1, 130, 300, 2049])
@pytest.mark.parametrize("name", NARROW)
def test_slices_end_where_a_cast_leaves_the_size(name: str, size: int) -> None:
    found, wanted = sliced(size, DataType[name], "Add", 0)
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("name", "op", "number"), [("UINT8", "Sub", 3), ("INT8", "Add", 100), ("FLOAT16", "Mul", 3), ("BFLOAT16", "Sub", 5)]
)
def test_arithmetic_of_few_bits_is_the_kernels(name: str, op: str, number: int) -> None:
    for size in (1, 99, 1001):
        found, wanted = sliced(size, DataType[name], op, number)
        for left, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", NARROW)
def test_a_type_of_few_bits_holds_no_size(name: str) -> None:
    assert in_range(make_value([n, 5]), DataType[name]).tolist() == [None, 5]


def test_an_unsigned_type_holds_what_cannot_be_below_zero() -> None:
    assert in_range(make_value([n + 1, n - 1, -1]), DataType.UINT64).tolist() == [n + 1, None, None]
    assert in_range(make_value([n + 1, n - 1, -1]), DataType.INT64).tolist() == [n + 1, n - 1, -1]


def test_floats_of_few_bits_hold_what_they_do_not_round() -> None:
    assert in_range(make_value([2048, 2049, 0.5, 0.1]), DataType.FLOAT16).tolist() == [2048, None, 0.5, None]
