"""Products, normalizations and movements of com.microsoft, by their formulas."""

from __future__ import annotations

import numpy as np

from ort_conformance.suites.contrib_row import Arrays, ContribRow

SIDE = (2, 4, 4, 8)
GROUPS = 2


def _group_normalized(x: np.ndarray, v: Arrays, is_swish: bool) -> np.ndarray:
    """Normalize [batch, height, width, channels] over groups of channels and all positions."""
    groups = x.reshape(x.shape[0], -1, GROUPS, x.shape[-1] // GROUPS)
    centered = groups - groups.mean((1, 3), keepdims=True)
    found = centered / np.sqrt((centered**2).mean((1, 3), keepdims=True) + 1e-5)
    y = found.reshape(x.shape) * v["g"] + v["b"]
    return y / (1 + np.exp(-y)) if is_swish else y


def _skipped(v: Arrays) -> tuple[np.ndarray, np.ndarray]:
    total = v["x"] + v["s"]
    return _group_normalized(total, v, False), total


def _trilu(v: Arrays) -> np.ndarray:
    return np.triu(v["x"], 1)


def _distances(v: Arrays) -> np.ndarray:
    return ((v["a"][:, None] - v["b"][None]) ** 2).sum(-1)


def _complex(v: Arrays) -> np.ndarray:
    (a, b), (c, d) = (np.moveaxis(v[name], -1, 0) for name in "ab")
    return np.stack([a * c - b * d, a * d + b * c], -1)


def _complex_by_conjugate(v: Arrays) -> np.ndarray:
    (a, b), (c, d) = (np.moveaxis(v[name], -1, 0) for name in "ab")
    return np.stack([a * c + b * d, b * c - a * d], -1)


def _spectrum(v: Arrays) -> np.ndarray:
    found = np.fft.rfft(v["x"])
    return np.stack([found.real, found.imag], -1)


def _signal(v: Arrays) -> np.ndarray:
    return np.fft.irfft(v["x"][..., 0] + 1j * v["x"][..., 1])


def _largest_of_four(v: Arrays) -> np.ndarray:
    return v["x"].reshape(1, 2, 2, 2, 2, 3).max((2, 4))


def _padded(v: Arrays) -> np.ndarray:
    return np.pad(v["x"], ((1, 2), (0, 3)), constant_values=0.5)


NORMALIZED = {"epsilon": 1e-5, "groups": GROUPS, "channels_last": 1}
TENSOR_ROWS = (
    ContribRow("GroupNorm", {"x": SIDE, "g": (8,), "b": (8,)}, lambda v: _group_normalized(v["x"], v, False),
               {**NORMALIZED, "activation": 0}, constants=("g", "b")),
    ContribRow("GroupNorm", {"x": SIDE, "g": (8,), "b": (8,)}, lambda v: _group_normalized(v["x"], v, True),
               {**NORMALIZED, "activation": 1}, "swish", constants=("g", "b")),
    ContribRow("SkipGroupNorm", {"x": SIDE, "g": (8,), "b": (8,), "s": SIDE}, _skipped,
               {**NORMALIZED, "activation": 0}, constants=("g", "b"), output_count=2),
    ContribRow("FusedGemm", {"a": (3, 5), "b": (5, 7), "c": (7,)}, lambda v: np.maximum(v["a"] @ v["b"] + v["c"], 0),
               {"activation": "Relu"}, constants=("b", "c")),
    ContribRow("GemmFastGelu", {"a": (3, 5), "b": (5, 7)},
               lambda v: _fast_gelu(v["a"] @ v["b"]), constants=("b",)),
    ContribRow("TransposeMatMul", {"a": (2, 5, 3), "b": (2, 5, 7)}, lambda v: 2 * v["a"].swapaxes(1, 2) @ v["b"],
               {"alpha": 2.0, "transA": 1}),
    ContribRow("CDist", {"a": (4, 6), "b": (5, 6)}, _distances, {"metric": "sqeuclidean"}),
    ContribRow("Inverse", {"x": (2, 4, 4)}, lambda v: np.linalg.inv(v["x"])),
    ContribRow("Trilu", {"x": (2, 4, 5)}, _trilu, {"upper": 1}, given={"k": np.array(1, np.int64)}, constants=("k",)),
    ContribRow("ExpandDims", {"x": (2, 3)}, lambda v: v["x"][:, None], given={"axis": np.array(1, np.int32)},
               constants=("axis",)),
    ContribRow("ComplexMul", {"a": (2, 3, 2), "b": (2, 3, 2)}, _complex),
    ContribRow("Pad", {"x": (2, 3)}, _padded, constants=("pads", "value"),
               given={"pads": np.array([1, 0, 2, 3], np.int64), "value": np.array(0.5, np.float32)}),
    ContribRow("UnfoldTensor", {"x": (2, 9)}, lambda v: np.lib.stride_tricks.sliding_window_view(v["x"], 4, -1)[:, ::2],
               {"dim": -1, "size": 4, "step": 2}),
    ContribRow("ComplexMulConj", {"a": (2, 3, 2), "b": (2, 3, 2)}, _complex_by_conjugate),
    ContribRow("Rfft", {"x": (2, 8)}, _spectrum, {"signal_ndim": 1, "normalized": 0, "onesided": 1}),
    ContribRow("Irfft", {"x": (2, 5, 2)}, _signal, {"signal_ndim": 1, "normalized": 0, "onesided": 1}),
    ContribRow("GatherND", {"x": (3, 4)}, lambda v: v["x"][v["at"][:, 0], v["at"][:, 1]],
               given={"at": np.array([[0, 1], [2, 3], [1, 0]], np.int64)}),
    ContribRow("TorchEmbedding", {"x": (5, 3)}, lambda v: v["x"][v["at"]],
               given={"at": np.array([[0, 4], [2, 2]], np.int64)}),
    ContribRow("Range", {}, lambda v: np.arange(*(v[name].item() for name in v)),
               given={"start": np.array(1, np.float32), "limit": np.array(7.5, np.float32),
                      "step": np.array(1.5, np.float32)}),
    ContribRow("IsAllFinite", {"x": (2, 3)}, lambda v: np.array(True)),
    ContribRow("SwiGLU", {"x": (2, 3, 8), "s": (2, 3, 8)}, lambda v: v["x"] / (1 + np.exp(-v["x"])) * v["s"]),
    ContribRow("FusedMatMulActivation", {"a": (3, 5), "b": (5, 7)}, lambda v: np.maximum(v["a"] @ v["b"], 0),
               {"activation": "Relu"}),
    ContribRow("NhwcMaxPool", {}, _largest_of_four, {"kernel_shape": [2, 2], "strides": [2, 2]},
               given={"x": np.random.default_rng(23).integers(0, 256, (1, 4, 4, 3)).astype(np.uint8)}),
)  # fmt: skip


def _fast_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
