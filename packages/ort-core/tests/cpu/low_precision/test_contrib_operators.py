"""Operators of com.microsoft over bytes, few bits and embeddings, native, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto
from test_groups import FLOAT, INT32, INT64, N, model_of, session
from test_quantized_groups import run_native

import ort_core as ort
from ort_core.tolerances import ToleranceName, compare

UINT8 = TensorProto.UINT8
RANDOM = np.random.default_rng(21)
DOMAIN = "com.microsoft"


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def weights(*shape: int) -> np.ndarray:
    """Return int8 weights of 7 bits: beside larger ones onnxruntime's sums saturate on x86 processors without VNNI."""
    return RANDOM.integers(-64, 64, shape).astype(np.int8)


def agrees(model: ModelProto, feeds: Mapping[str, np.ndarray], name: ToleranceName = "approximate") -> None:
    found = run_native(model, feeds)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for left, right in zip(found, expected.run(None, dict(feeds)), strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        comparison = compare(left, right, name)
        assert comparison.passes, comparison


MASKS: dict[str, tuple[list[int | str], int]] = {
    "none": ([], 0), "lengths": (["B"], 1), "keys": (["B", "T"], 2), "pairs": (["B", "S", "T"], 3),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("past", [False, True], ids=["first", "with past"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_equals_onnxruntime(mask: str, past: bool, causal: int) -> None:
    batch, length, width, heads, earlier = 2, 5, 24, 3, 4 if past else 0
    keys = length + earlier
    feeds = {"x": floats(batch, length, width)}
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (FLOAT, ["B", "S", width])}
    names = ["x", "w", "b"] + ["mask" if mask != "none" else ""] + (["past"] if past else [])
    dims, rank = MASKS[mask]
    if rank:
        inputs["mask"] = (INT32, dims)
        shape = {1: (batch,), 2: (batch, keys), 3: (batch, length, keys)}[rank]
        whole = RANDOM.integers(0, 2, shape).astype(np.int32)
        feeds["mask"] = np.array([keys, keys - 2], np.int32) if rank == 1 else whole
    if past:
        inputs["past"] = (FLOAT, [2, "B", heads, "P", width // heads])
        feeds["past"] = floats(2, batch, heads, earlier, width // heads)
    node = N("Attention", names, ["y", "present"], domain=DOMAIN, num_heads=heads, unidirectional=causal)
    constants = {"w": floats(width, 3 * width), "b": floats(3 * width)}
    agrees(model_of([node], inputs, {"y": FLOAT, "present": FLOAT}, constants), feeds)


def test_attention_of_unequal_widths_with_an_addend_equals_onnxruntime() -> None:
    node = N(
        "Attention", ["x", "w", "b", "", "", "addend"], ["y"], domain=DOMAIN, num_heads=2,
        qkv_hidden_sizes=[16, 16, 24], scale=0.3,
    )  # fmt: skip
    inputs = {"x": (FLOAT, ["B", "S", 12]), "addend": (FLOAT, ["B", 2, "S", "S"])}
    constants = {"w": floats(12, 56), "b": floats(56)}
    feeds = {"x": floats(3, 7, 12), "addend": floats(3, 2, 7, 7)}
    agrees(model_of([node], inputs, {"y": FLOAT}, constants), feeds)


@pytest.mark.parametrize("is_masked", [False, True], ids=["all", "masked"])
def test_quantized_attention_equals_onnxruntime(is_masked: bool) -> None:
    width, heads = 16, 2
    names = ["x", "w", "b", "xs", "ws", "mask" if is_masked else "", "xz", "wz"]
    node = N("QAttention", names, ["y"], domain=DOMAIN, num_heads=heads)
    constants = {
        "w": weights(width, 3 * width), "b": floats(3 * width),
        "xs": np.float32(0.02), "ws": np.float32(0.01), "xz": np.uint8(120), "wz": np.int8(0),
    }  # fmt: skip
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (UINT8, ["B", "S", width])}
    feeds = {"x": RANDOM.integers(0, 256, (2, 6, width)).astype(np.uint8)}
    if is_masked:
        inputs["mask"] = (INT32, ["B"])
        feeds["mask"] = np.array([6, 3], np.int32)
    agrees(model_of([node], inputs, {"y": FLOAT}, {k: np.asarray(v) for k, v in constants.items()}), feeds)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("zero", [False, True], ids=["symmetric", "zero points"])
def test_dynamically_quantized_product_equals_onnxruntime(rows: int, zero: bool) -> None:
    names = ["x", "w", "ws", "wz" if zero else "", "b"]
    node = N("DynamicQuantizeMatMul", names, ["y"], domain=DOMAIN)
    constants = {
        "w": weights(30, 50), "ws": RANDOM.uniform(0.01, 0.02, 50),
        "wz": RANDOM.integers(-9, 9, 50).astype(np.int8), "b": floats(50),
    }  # fmt: skip
    used = {name: array for name, array in constants.items() if name in names}
    used["ws"] = used["ws"].astype(np.float32)
    model = model_of([node], {"x": (FLOAT, ["A", "N", 30])}, {"y": FLOAT}, used)
    agrees(model, {"x": floats(2, rows, 30)})


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("op_type", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_mean_of_windows_equals_onnxruntime(op_type: str, channels_last: int, dtype: type) -> None:
    attributes = {"channels_last": channels_last}
    if op_type == "QLinearAveragePool":
        attributes |= {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    node = N(op_type, ["x", "xs", "xz", "ys", "yz"], ["y"], domain=DOMAIN, **attributes)
    low = np.iinfo(dtype).min
    constants = {"xs": np.float32(0.04), "xz": dtype(low + 130), "ys": np.float32(0.03), "yz": dtype(low + 120)}
    kind = UINT8 if dtype is np.uint8 else TensorProto.INT8
    shape: list[int | str] = ["N", 9, 8, 19] if channels_last else ["N", 19, 9, 8]
    model = model_of([node], {"x": (kind, shape)}, {"y": kind}, {k: np.asarray(v) for k, v in constants.items()})
    sizes = [3, *(each for each in shape if isinstance(each, int))]
    agrees(model, {"x": RANDOM.integers(low, low + 256, sizes).astype(dtype)})


@pytest.mark.parametrize("outputs", [["y", "counts"], ["y", "counts", "total"]], ids=len)
@pytest.mark.parametrize("optional", [False, True], ids=["plain", "segments and positions"])
def test_embedding_normalization_equals_onnxruntime(outputs: list[str], optional: bool) -> None:
    names = ["ids", "seg" if optional else "", "word", "place", "kind" if optional else "", "g", "b"]
    inputs: dict[str, tuple[int, list[int | str]]] = {"ids": (INT32, ["B", "S"])}
    feeds = {"ids": RANDOM.integers(0, 30, (3, 7)).astype(np.int32)}
    if optional:
        names += ["mask", "pos"]
        inputs |= {"seg": (INT32, ["B", "S"]), "mask": (INT32, ["B", "S"]), "pos": (INT32, ["B", "S"])}
        feeds |= {name: RANDOM.integers(0, 2, (3, 7)).astype(np.int32) for name in ("seg", "mask", "pos")}
    node = N("EmbedLayerNormalization", names, outputs, domain=DOMAIN, epsilon=1e-6)
    tables = {"word": (30, 40), "place": (16, 40), "kind": (2, 40), "g": (40,), "b": (40,)}
    constants = {name: floats(*shape) for name, shape in tables.items() if name in names}
    kinds = {"y": FLOAT, "counts": INT32, "total": FLOAT}
    agrees(model_of([node], inputs, {name: kinds[name] for name in outputs}, constants), feeds)


def test_positions_cut_from_a_longer_table_are_read_natively() -> None:
    names = ["ids", "", "word", "place", "", "g", "b", "", "pos"]
    nodes = [
        N("Shape", ["ids"], ["length"], start=1, end=2),
        N("Slice", ["all", "zero", "length", "one"], ["pos"]),  # as long as the table or the ids, whichever is less
        N("EmbedLayerNormalization", names, ["y", "counts"], domain=DOMAIN),
    ]
    constants = {"word": floats(30, 8), "place": floats(12, 8), "g": floats(8), "b": floats(8)}
    constants |= {
        "all": np.arange(12, dtype=np.int32)[None],
        "zero": np.zeros(1, np.int64),
        "one": np.ones(1, np.int64),
    }
    model = model_of(nodes, {"ids": (INT32, ["B", "S"])}, {"y": FLOAT, "counts": INT32}, constants)
    agrees(model, {"ids": RANDOM.integers(0, 30, (3, 7)).astype(np.int32)})
    with pytest.raises(ort.OrtError):
        session(model, "CPUExecutionProvider").run(None, {"ids": np.zeros((1, 13), np.int32)})


def test_ids_that_no_row_has_are_refused_as_by_the_kernels() -> None:
    names = ["ids", "", "word", "place", "", "g", "b"]
    node = N("EmbedLayerNormalization", names, ["y", "counts"], domain=DOMAIN)
    constants = {"word": floats(9, 8), "place": floats(4, 8), "g": floats(8), "b": floats(8)}
    model = model_of([node], {"ids": (INT32, ["B", "S"])}, {"y": FLOAT, "counts": INT32}, constants)
    compiled = session(model, "CPUExecutionProvider")
    for wrong in (-1, 9):
        with pytest.raises(ort.OrtError, match=f"index {wrong} is out of range"):
            compiled.run(None, {"ids": np.array([[0, wrong]], np.int32)})
    with pytest.raises(ort.OrtError, match="index 4 is out of range"):
        compiled.run(None, {"ids": np.zeros((1, 5), np.int32)})


@pytest.mark.parametrize("zeros", [False, True], ids=["symmetric", "zero points"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(5,), (2, 3)], ids=str)
def test_gathered_rows_of_few_bits_equal_onnxruntime(bits: int, shape: tuple[int, ...], zeros: bool) -> None:
    rows, width, block = 20, 96, 16
    blocks = width // block
    node = N(
        "GatherBlockQuantized", ["w", "i", "s", *(["z"] if zeros else [])], ["y"], domain=DOMAIN, bits=bits,
        block_size=block, gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    constants = {
        "w": RANDOM.integers(0, 256, (rows, width * bits // 8)).astype(np.uint8), "s": floats(rows, blocks),
    }  # fmt: skip
    if zeros:
        constants["z"] = RANDOM.integers(0, 256, (rows, blocks * bits // 8)).astype(np.uint8)
    model = model_of([node], {"i": (INT64, [f"D{axis}" for axis in range(len(shape))])}, {"y": FLOAT}, constants)
    agrees(model, {"i": RANDOM.integers(-rows, rows, shape)}, "rounding")
