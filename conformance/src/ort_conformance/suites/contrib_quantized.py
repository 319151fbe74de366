"""Quantized operators of com.microsoft, by the numbers that their integers stand for."""

from __future__ import annotations

import numpy as np

from ort_conformance.suites.contrib_row import Arrays, ContribRow

_RANDOM = np.random.default_rng(21)
ROWS_OF_A, DEPTH, COLUMNS, BLOCK = 3, 32, 6, 16


def _bytes(*shape: int) -> np.ndarray:
    return _RANDOM.integers(0, 256, shape).astype(np.uint8)


def _scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _zero(value: int) -> np.ndarray:
    return np.array(value, np.uint8)


def _pair(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs of an operator of two quantized tensors, and of its result."""
    return {
        "a": a, "as": _scale(0.03), "az": _zero(120), "b": b, "bs": _scale(0.05), "bz": _zero(131),
        "ys": _scale(0.09), "yz": _zero(128),
    }  # fmt: skip


def _real(v: Arrays, name: str) -> np.ndarray:
    return (v[name].astype(np.float64) - v[name + "z"]) * v[name + "s"]


def _stored(v: Arrays, real: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(real / v["ys"]) + v["yz"], 0, 255).astype(np.uint8)


def _one(x: np.ndarray, scale: float = 0.05) -> dict[str, np.ndarray]:
    return {"x": x, "xs": _scale(0.04), "xz": _zero(117), "ys": _scale(scale), "yz": _zero(100)}


def _nibbles(v: Arrays) -> np.ndarray:
    """Weights of 4 bits, two to a byte, the first in the low half; 8 stands for zero."""
    packed = v["b"].reshape(COLUMNS, -1)
    weights = np.stack([packed & 15, packed >> 4], -1).reshape(COLUMNS, DEPTH).astype(np.float64) - 8
    return v["a"] @ (weights * v["s"].reshape(COLUMNS, -1).repeat(BLOCK, 1)).T


def _shorts(*shape: int) -> np.ndarray:
    return _RANDOM.integers(-1000, 1000, shape).astype(np.int16)


PAIR = ("as", "az", "bs", "bz", "ys", "yz")
ONE = ("xs", "xz", "ys", "yz")
QUANTIZED_ROWS = (
    ContribRow("QLinearAdd", {}, lambda v: _stored(v, _real(v, "a") + _real(v, "b")),
               given=_pair(_bytes(2, 3, 8), _bytes(2, 3, 8)), constants=PAIR),
    ContribRow("QLinearMul", {}, lambda v: _stored(v, _real(v, "a") * _real(v, "b")),
               given=_pair(_bytes(2, 3, 8), _bytes(8)), constants=PAIR),
    ContribRow("QLinearSigmoid", {}, lambda v: _stored(v, 1 / (1 + np.exp(-_real(v, "x")))),
               given=_one(_bytes(2, 3, 8), 1 / 255), constants=ONE),
    ContribRow("QLinearLeakyRelu", {}, lambda v: _stored(v, np.where(_real(v, "x") < 0, 0.1, 1) * _real(v, "x")),
               {"alpha": 0.1}, given=_one(_bytes(2, 3, 8)), constants=ONE),
    ContribRow("QLinearGlobalAveragePool", {}, lambda v: _stored(v, _real(v, "x").mean((2, 3), keepdims=True)),
               {"channels_last": 0}, given=_one(_bytes(2, 3, 4, 4)), constants=ONE),
    ContribRow(
        "MatMulIntegerToFloat", {},
        lambda v: ((v["a"].astype(np.int64) - v["az"]) @ (v["b"].astype(np.int64) - v["bz"])) * v["as"] * v["bs"],
        given=_pair(_bytes(ROWS_OF_A, DEPTH), _bytes(DEPTH, COLUMNS)), constants=("b", *PAIR[:4]),
        order=("a", "b", "as", "bs", "az", "bz"),
    ),
    ContribRow(
        "MatMulNBits", {"a": (ROWS_OF_A, DEPTH), "s": (COLUMNS * DEPTH // BLOCK,)}, _nibbles,
        {"K": DEPTH, "N": COLUMNS, "bits": 4, "block_size": BLOCK},
        given={"b": _bytes(COLUMNS, DEPTH // BLOCK, BLOCK // 2)}, constants=("b", "s"), order=("a", "b", "s"),

    ),
    ContribRow("QuantizeLinear", {"x": (2, 3, 8)}, lambda v: _stored(v, v["x"]),
               given={"ys": _scale(0.03), "yz": _zero(119)}, constants=("ys", "yz")),
    ContribRow("DequantizeLinear", {}, lambda v: _real(v, "x"), constants=("xs", "xz"),
               given={"x": _bytes(2, 3, 8), "xs": _scale(0.03), "xz": _zero(119)}),
    ContribRow("MulInteger", {}, lambda v: (v["a"].astype(np.int32) - v["az"]) * (v["b"].astype(np.int32) - v["bz"]),
               given={"a": _bytes(2, 3), "az": _zero(120), "b": _bytes(2, 3), "bz": _zero(131)},
               constants=("az", "bz")),
    ContribRow("ReduceSumInteger", {}, lambda v: v["x"].astype(np.uint32).sum(1, np.uint32),
               {"axes": [1], "keepdims": 0}, given={"x": _bytes(3, 5)}),
    ContribRow("MatMulInteger16", {}, lambda v: v["a"].astype(np.int32) @ v["b"].astype(np.int32),
               given={"a": _shorts(3, 8), "b": _shorts(8, 5)}),
    ContribRow("QGemm", {}, lambda v: _stored(v, _real(v, "a") @ _real(v, "b")),
               given=_pair(_bytes(ROWS_OF_A, DEPTH), _bytes(DEPTH, COLUMNS)) | {"ys": _scale(1.5)},
               constants=("b", *PAIR), order=("a", "as", "az", "b", "bs", "bz", "", "ys", "yz")),
    ContribRow("QLinearConcat", {}, lambda v: _stored(v, np.concatenate([_real(v, "a"), _real(v, "b")], 1)),
               {"axis": 1}, given=_pair(_bytes(2, 3), _bytes(2, 5)), constants=PAIR,
               order=("ys", "yz", "a", "as", "az", "b", "bs", "bz")),
    ContribRow("QLinearWhere", {}, lambda v: _stored(v, np.where(v["c"], _real(v, "a"), _real(v, "b"))),
               given=_pair(_bytes(2, 3), _bytes(2, 3)) | {"c": np.array([[True, False, True]] * 2)}, constants=PAIR,
               order=("c", "a", "as", "az", "b", "bs", "bz", "ys", "yz")),
    ContribRow("QLinearReduceMean", {}, lambda v: _stored(v, _real(v, "x").mean(1)), {"axes": [1], "keepdims": 0},
               given=_one(_bytes(2, 5, 3)), constants=ONE),
)  # fmt: skip
