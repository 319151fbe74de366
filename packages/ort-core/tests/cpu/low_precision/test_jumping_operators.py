"""Operators whose results jump read halves as the model's types have them, though a group computes in float32.

The operands are squares of halves: float32 has them exactly and a half rounds them, so that many are equal only in
the half's type. The truth is numpy's, rounded where ONNX's types say so.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from test_groups import N, model_of
from test_quantized_groups import run_native

Truth = Callable[[np.ndarray], np.ndarray]
TYPES = {TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64

SQUARE = [N("Neg", ["x"], ["n"]), N("Mul", ["x", "n"], ["m"]), N("Neg", ["m"], ["t"])]


def marked(x: np.ndarray) -> np.ndarray:
    return np.eye(x.shape[-1])[x.argmax(-1)]


JUMPS: dict[str, tuple[dict[str, object], int, Truth]] = {  # attributes, result's type (0: the operand's), truth
    "ArgMax": ({"axis": -1, "keepdims": 0}, INT64, lambda x: x.argmax(-1)),
    "ArgMin": ({"axis": -1, "keepdims": 0}, INT64, lambda x: x.argmin(-1)),
    "Hardmax": ({"axis": -1}, 0, marked),
    "Floor": ({}, 0, np.floor),
    "Ceil": ({}, 0, np.ceil),
    "Round": ({}, 0, np.rint),
    "Cast": ({"to": INT64}, INT64, lambda x: x.astype(np.int64)),
    "Shrink": ({"lambd": 1.0}, 0, lambda x: np.where(np.abs(x) > 1.0, x, 0.0)),
    "ThresholdedRelu": ({"alpha": 1.0}, 0, lambda x: np.where(x > 1.0, x, 0.0)),
}


def squares(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return halves ``[40, 64]`` and their squares in the same type, as float64; both have many near 1 and 2."""
    random = np.random.default_rng(11)
    x = (random.choice([1.0, np.sqrt(2.0)], (40, 64)) + random.integers(-9, 10, (40, 64)) / 256).astype(dtype)
    return x, (x.astype(np.float64) ** 2).astype(dtype).astype(np.float64)


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("between", [[], ["Transpose", "Transpose"]], ids=["at once", "behind views"])
@pytest.mark.parametrize("op", JUMPS)
def test_what_jumps_reads_rounded_operands(op: str, between: list[str], half: int) -> None:
    if op == "Shrink" and half == TensorProto.BFLOAT16:
        pytest.skip("ONNX has no Shrink of bfloat16")
    attributes, result, truth = JUMPS[op]
    nodes, name = [*SQUARE, N("Identity", ["t"], ["t0"])], "t0"
    for index, view in enumerate(between, 1):
        nodes.append(N(view, [name], [f"t{index}"], perm=[1, 0]))
        name = f"t{index}"
    nodes.append(N(op, [name], ["y"], **attributes))
    model = model_of(nodes, {"x": (half, ["N", 64])}, {"y": result or half}, opset=22)
    x, values = squares(TYPES[half])
    found = np.asarray(run_native(model, {"x": x})[0]).astype(np.float64)
    assert np.array_equal(found, truth(values).astype(np.float64))


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_read_rounded_operands(op: str, half: int) -> None:
    compared: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
    }  # fmt: skip
    model = model_of(
        [*SQUARE, N(op, ["t", "s"], ["y"])], {"x": (half, ["N", 64]), "s": (half, ["N", 64])},
        {"y": BOOL}, opset=22,
    )  # fmt: skip
    x, values = squares(TYPES[half])
    other = values.astype(TYPES[half])
    found = run_native(model, {"x": x, "s": other})[0]
    assert np.array_equal(found, compared[op](values, other.astype(np.float64)))


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
def test_what_is_compared_is_what_is_returned(half: int) -> None:
    """A caller who compares the returned values himself finds the same places."""
    model = model_of(
        [*SQUARE, N("ArgMax", ["t"], ["y"], axis=1, keepdims=0)],
        {"x": (half, ["N", 64])}, {"t": half, "y": INT64}, opset=22,
    )  # fmt: skip
    values, places = run_native(model, {"x": squares(TYPES[half])[0]})
    assert np.array_equal(places, np.asarray(values).astype(np.float64).argmax(1))


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("between", ["", "Transpose"], ids=["at once", "behind a view"])
def test_quantized_halves_are_rounded_first(between: str, half: int) -> None:
    """Squares about the middle of two steps: a half that lies on it goes to the even one, its float32 past it."""
    random = np.random.default_rng(12)
    x = (random.choice([1.5, 2.5, 3.5], (40, 64)) ** 0.5 + random.integers(-2, 3, (40, 64)) / 1024).astype(TYPES[half])
    values = (x.astype(np.float64) ** 2).astype(TYPES[half]).astype(np.float64)
    view = [N("Transpose", ["t"], ["v"], perm=[1, 0])] if between else []
    model = model_of(
        [*SQUARE, *view, N("QuantizeLinear", ["v" if between else "t", "scale", "zero"], ["y"])],
        {"x": (half, ["N", 64])}, {"y": TensorProto.UINT8},
        {"scale": np.array(1.0, TYPES[half]), "zero": np.array(3, np.uint8)}, opset=22,
    )  # fmt: skip
    found = run_native(model, {"x": x})[0]
    assert np.array_equal(found, (np.rint(values) + 3).T if between else np.rint(values) + 3)


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("wide", [TensorProto.FLOAT, TensorProto.DOUBLE], ids=["float", "double"])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "Floor", "Cast", "ThresholdedRelu"])
def test_what_jumps_behind_a_cast_to_a_wide_type_reads_halves(op: str, wide: int, half: int) -> None:
    """Programs that compute in halves rank their results in float32: of the values that the halves have."""
    attributes, result, truth = JUMPS[op]
    nodes = [*SQUARE, N("Cast", ["t"], ["w"], to=wide), N("Transpose", ["w"], ["v"], perm=[1, 0])]
    nodes += [N("Transpose", ["v"], ["u"], perm=[1, 0]), N(op, ["u"], ["y"], **attributes)]
    model = model_of(nodes, {"x": (half, ["N", 64])}, {"y": result or wide}, opset=22)
    x, values = squares(TYPES[half])
    assert np.array_equal(run_native(model, {"x": x})[0], truth(values))


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
def test_what_is_ranked_by_a_kernel_of_numpy_is_rounded_too(half: int) -> None:
    model = model_of(
        [*SQUARE, N("Cast", ["t"], ["w"], to=TensorProto.FLOAT), N("Unique", ["w"], ["y"])],
        {"x": (half, ["N", 64])}, {"y": TensorProto.FLOAT}, opset=22,
    )  # fmt: skip
    x, values = squares(TYPES[half])
    found = run_native(model, {"x": x}, whole=False)[0]
    assert np.array_equal(found, np.unique(values))


NARROW = {
    "another half": None,
    "float8e4m3fn": (TensorProto.FLOAT8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn)),
    "float8e5m2": (TensorProto.FLOAT8E5M2, np.dtype(ml_dtypes.float8_e5m2)),
}


@pytest.mark.parametrize("half", TYPES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("narrow", NARROW)
def test_a_cast_to_another_narrow_type_rounds_the_half(narrow: str, half: int) -> None:
    """What float32 holds beside the middle of two results lies on it as a half: it is rounded twice, as written."""
    other = next(each for each in TYPES if each != half)
    to, dtype = NARROW[narrow] or (other, TYPES[other])
    model = model_of([*SQUARE, N("Cast", ["t"], ["y"], to=to)], {"x": (half, ["N", 64])}, {"y": to}, opset=22)
    random = np.random.default_rng(13)
    x = random.uniform(0.5, 2, (200, 64)).astype(TYPES[half])
    expected = (x.astype(np.float64) ** 2).astype(TYPES[half]).astype(np.float32).astype(dtype)
    found = run_native(model, {"x": x}, whole=narrow == "another half")[0]
    assert np.asarray(found).tobytes() == expected.tobytes()
