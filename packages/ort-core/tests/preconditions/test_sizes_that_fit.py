"""Operators of com.microsoft that the CPU of onnxruntime lacks: each size of each input must fit the others."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import ort_core as ort

F8 = ml_dtypes.float8_e4m3fn
FITTING = {  # attributes, number of outputs, inputs as (shape, type), and axes whose size is free
    "GemmaRotaryEmbedding": (
        {}, 2, [((2, 3, 4), "f4"), *[((2, 5, 3, 4), "f2")] * 4], {},
    ),
    "GatedRelativePositionBias": (
        {"num_heads": 2}, 1,
        [((2, 3, 8), "f4"), ((8,), "f4"), ((1, 2, 3, 3), "f4"), ((4, 6), "f4"), ((6,), "f4"), ((1, 2, 1, 1), "f4")],
        {(0, 0), (2, 0)},
    ),
    "GemmFloat8": ({"transB": 1}, 1, [((3, 5), "f4"), ((4, 5), "f4")], {(0, 0), (1, 0)}),
    "MatMulBlockQuantizedFp8Weight": (
        {"block_size": 16}, 1, [((3, 32), "f2"), ((4, 32), F8), ((4, 2), "f4"), None, ((4,), "f2")], {(0, 0)},
    ),
    "MatMulBlockQuantizedFp4Weight": (
        {"block_size": 16}, 1,
        [((3, 32), "f2"), ((4, 16), "u1"), ((4, 2), "u1"), ((1,), "f4"), None, ((4,), "f2")], {(0, 0), (3, 0)},
    ),
    "HyperConnectionLowRankMix": (
        {"num_branches": 3}, 3,
        [((2, 12), "f4"), ((12,), "f4"), ((12, 5), "f4"), ((5, 12), "f4"), ((12, 3), "f4"), ((2, 4), "f4"),
         ((2, 3), "f4")], {},
    ),
    "MatMulNBitsQLoRA": (
        {"K": 20, "N": 5, "block_size": 16, "lora_block_size": 16}, 1,
        [((3, 20), "f4"), ((5, 2, 8), "u1"), ((5, 2), "f4"), ((6, 2, 16), "u1"), ((6, 2), "f4"), ((5, 1, 16), "u1"),
         ((5, 1), "f4")], {(0, 0)},
    ),
    "CausalConvWithState": (
        {"state_window": 3}, 2, [((2, 4, 6), "f4"), ((4, 1, 3), "f4"), ((4,), "f4"), ((3, 2, 4, 2), "f4")], {(0, 2)},
    ),
    "LinearAttention": (
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear", "state_window": 3}, 2,
        [((2, 5, 16), "f4"), ((2, 5, 8), "f4"), ((2, 5, 12), "f4"), ((3, 2, 2, 4, 6), "f4")], {},
    ),
    "NhwcConv": (
        {}, 1, [((1, 5, 5, 2), "f4"), ((3, 2, 2, 2), "f4"), ((3,), "f4")], {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)},
    ),
    "NhwcFusedConv": (
        {}, 1, [((1, 5, 5, 2), "f4"), ((3, 2, 2, 2), "f4"), ((3,), "f4")], {(0, 0), (0, 1), (0, 2), (1, 2), (1, 3)},
    ),
    "MatMulNBitsMlp": (
        {"K": 32, "N": 5, "block_size": 16, "activation": "silu"}, 1,
        [((3, 32), "f4"), ((3, 32), "f4"), ((32,), "f4"), *[((5, 2, 8), "u1"), ((5, 2), "f4"), ((5,), "f4")] * 2], {},
    ),
    "MatMulNBitsQkv": (
        {"K": 32, "Nq": 6, "Nkv": 5, "block_size": 16}, 3,
        [((3, 32), "f4"), ((3, 32), "f4"), ((32,), "f4"), ((6, 2, 8), "u1"), ((6, 2), "f4"), ((6,), "f4"),
         *[((5, 2, 8), "u1"), ((5, 2), "f4"), ((5,), "f4")] * 2], {},
    ),
}  # fmt: skip


def run(op_type: str, arrays: list[np.ndarray | None]) -> list[np.ndarray]:
    attributes, outputs, _, _ = FITTING[op_type]
    names = ["" if array is None else f"i{place}" for place, array in enumerate(arrays)]
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    results = [f"o{place}" for place in range(outputs)]
    node = helper.make_node(op_type, names, results, domain="com.microsoft", **attributes)
    kind = helper.np_dtype_to_tensor_dtype(next(a.dtype for a in arrays[1:2] if a is not None))
    kind = kind if op_type == "GemmaRotaryEmbedding" else helper.np_dtype_to_tensor_dtype(feeds["i0"].dtype)
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info(name, kind, None) for name in results]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)


def ones(op_type: str) -> list[np.ndarray | None]:
    given = FITTING[op_type][2]
    return [None if each is None else np.ones(each[0], np.float32).astype(each[1]) for each in given]


def breaks() -> Iterator[tuple[str, int, int]]:
    for op_type, (_, _, given, free) in FITTING.items():
        for place, each in enumerate(given):
            for axis in range(0 if each is None else len(each[0])):
                if (place, axis) not in free and not (
                    op_type == "GatedRelativePositionBias" and (place, axis) == (2, 0)
                ):
                    yield op_type, place, axis


@pytest.mark.parametrize("op_type", FITTING)
def test_sizes_that_fit_give_a_result(op_type: str) -> None:
    assert all(np.isfinite(found.astype(np.float64)).all() for found in run(op_type, ones(op_type)))


@pytest.mark.parametrize(("op_type", "place", "axis"), list(breaks()))
def test_a_size_that_does_not_fit_is_refused(op_type: str, place: int, axis: int) -> None:
    arrays = ones(op_type)
    broken = arrays[place]
    assert broken is not None
    arrays[place] = np.concatenate([broken, np.take(broken, [0], axis=axis)], axis=axis)
    with pytest.raises(ort.errors.OrtError, match=op_type):
        run(op_type, arrays)


@pytest.mark.parametrize(
    ("op_type", "place"), [(op, i) for op, row in FITTING.items() for i, e in enumerate(row[2]) if e and e[0] != (1,)]
)
def test_an_axis_too_many_is_refused(op_type: str, place: int) -> None:
    arrays = ones(op_type)
    arrays[place] = arrays[place][..., None]  # type: ignore[index]  # what is left out is not asked for
    with pytest.raises(ort.errors.OrtError, match=op_type):
        run(op_type, arrays)
