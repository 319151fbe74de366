"""Casts of floats to integers: what is beyond the range, infinite or not a number becomes the same in every engine.

The definition is one conversion as x86 processors make it, on Python's integers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from beside_reference import run_both
from onnx import TensorProto, helper

from ort_core.cpu.partition.partition import CpuPartition
from ort_core.kernels.reference.elementwise.cast import cast

INTEGERS = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")
SOURCES = ("FLOAT", "DOUBLE", "FLOAT16")
NUMBERS = [
    math.nan, math.inf, -math.inf, -0.5, -1.0, 127.9, 128.0, -129.0, 255.9, 256.0, 32768.0, -32769.0, 65535.5, 65536.0,
    *(sign * 2.0**power * (1 + part) for power in (31, 32, 33, 63, 64, 70) for part in (0, 2**-20) for sign in (1, -1)),
]  # fmt: skip


def converted(number: float, target: str) -> int:
    bits = int(target.lstrip("UINT"))
    held = 64 if bits == 64 or target == "UINT32" else 32
    least, end = -(1 << held - 1), 1 << held - 1
    whole = int(number) if math.isfinite(number) else None
    if target == "UINT64" and number >= end:  # what is above int64 is moved down by 2 ** 63, and back
        whole = ((whole - end) if whole is not None and whole < 2 * end else least) + end
    elif whole is None or not least <= whole < end:
        whole = least
    low = whole & (1 << bits) - 1
    return low - (1 << bits) if target.startswith("I") and low >> bits - 1 else low


def numbers(source: str, count: int = 1) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, source))
    with np.errstate(over="ignore"):
        return np.tile(np.array(NUMBERS), count).astype(dtype)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", INTEGERS)
def test_kernel_converts_each_number_alike_whatever_lies_beside_it(source, target):
    x, to = numbers(source, 3), getattr(TensorProto, target)
    wanted = [converted(float(number), target) for number in x]
    assert cast(x, to=to).tolist() == wanted
    assert [int(cast(number, to=to)[0]) for number in x.reshape(-1, 1)] == wanted


@pytest.mark.parametrize("source", ["FLOAT", "FLOAT16"])  # so few nodes of doubles are not worth a program
@pytest.mark.parametrize("target", INTEGERS)
def test_compiled_code_converts_as_the_kernel_does(partitions: list[CpuPartition], source, target):
    x, to = numbers(source, 3), getattr(TensorProto, target)
    nodes = []  # a cast alone is not worth a program
    for turn in range(4):
        nodes.append(helper.make_node("Mul", [f"whole{turn}" if turn else "x", "half"], [f"part{turn}"]))
        nodes.append(helper.make_node("Add", [f"part{turn}"] * 2, [f"whole{turn + 1}"]))
    nodes.append(helper.make_node("Cast", ["whole4"], ["y"], to=to))
    compiled, _ = run_both(partitions, nodes, {"half": np.array(0.5, x.dtype)}, x, getattr(TensorProto, source), to)
    assert compiled.tolist() == [converted(float(number), target) for number in x]
