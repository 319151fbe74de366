"""Operators of com.microsoft that onnxruntime's CPU has: what does not fit is refused there and here."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper

import ort_core as ort

Arrays = list[np.ndarray | None]
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
F, I32, I64 = np.float32, np.int32, np.int64
WIDTHS = {"num_heads": 2, "kv_num_heads": 2}
VALID: dict[str, tuple[dict[str, Any], int, list[tuple[tuple[int, ...], Any] | None]]] = {
    "HyperConnectionPreMix": ({"num_branches": 3}, 1, [((2, 5, 12), F), ((2, 5, 3), F)]),
    "HyperConnectionPostMix": (
        {}, 1, [((2, 3, 4), F), ((2, 4), F), ((2, 3, 1), F), ((2, 3, 3), F)],
    ),
    "BranchwiseRMSNorm": ({"num_branches": 3}, 1, [((2, 12), F), ((12,), F)]),
    "EngramGate": (
        {}, 2, [((2, 3, 4, 5), F), ((2, 3, 4, 5), F), ((2, 3, 5), F), *[((4, 5), F)] * 3],
    ),
    "NGramRepeatBlock": ({"ngram_size": 2}, 1, [((2, 5), I64), ((2, 7), F)]),
    "MulInteger": ({}, 1, [((2, 3), np.uint8), ((), np.uint8), ((2, 3), np.uint8), ((), np.uint8)]),
    "QLinearReduceMean": (
        {"axes": [1], "keepdims": 1}, 1, [((2, 3), np.uint8), ((), F), ((), np.uint8), ((), F), ((), np.uint8)],
    ),
    "ConvTransposeWithDynamicPads": (
        {}, 1, [((1, 2, 5, 5), F), ((2, 3, 3, 3), F), ((4,), I64)],
    ),
    "GroupQueryAttention": (
        WIDTHS, 3,
        [((2, 1, 16), F), ((2, 1, 16), F), ((2, 1, 16), F), ((2, 2, 4, 8), F), ((2, 2, 4, 8), F), ((2,), I32),
         ((), I32)],
    ),
    "DecoderMaskedMultiHeadAttention": (
        {"num_heads": 2}, 3, [((2, 1, 8), F), ((2, 1, 8), F), ((2, 1, 8), F), None, None, *[((2, 2, 3, 4), F)] * 2],
    ),
    "GatedRMSNorm": ({}, 1, [((2, 12), F), ((4,), F), ((2, 12), F)]),
    "WordConvEmbedding": ({}, 1, [((2, 4), I32), ((5, 1, 2, 3), F), ((5,), F), ((6, 3), F)]),
    "SparseAttention": (
        {**WIDTHS, "sparse_block_size": 16}, 3,
        [*[((1, 2, 16), F)] * 3, *[((1, 2, 16, 8), F)] * 2, ((1, 2), I32), ((1, 1), I32), ((1,), I32), ((1,), I32)],
    ),
    "QGemm": (
        {}, 1,
        [((2, 3), np.uint8), ((), F), ((), np.uint8), ((3, 4), np.uint8), ((4,), F), ((4,), np.uint8), ((1, 4), I32)],
    ),
    "DynamicQuantizeLSTM": (
        {"hidden_size": 3}, 3,
        [((2, 1, 4), F), ((1, 4, 12), np.uint8), ((1, 3, 12), np.uint8), *[None] * 5, ((1,), F), ((1,), np.uint8),
         ((1,), F), ((1,), np.uint8)],
    ),
}  # fmt: skip
# Valid ones, too: no kernel of onnxruntime, buffers that only bindings share, or weights that are no constants.
REFUSES_ALL = {
    "SparseAttention",
    "DecoderMaskedMultiHeadAttention",
    "MulInteger",
    "QLinearReduceMean",
}
BROKEN = [
    ("HyperConnectionPreMix", 0, (2, 5, 0)), ("HyperConnectionPreMix", 0, (2, 5, 11)),
    ("HyperConnectionPreMix", 0, (1, 5, 12)), ("HyperConnectionPreMix", 1, (2, 1, 3)),
    ("HyperConnectionPreMix", 1, (2, 5, 2)), ("HyperConnectionPostMix", 1, (1, 4)),
    ("HyperConnectionPostMix", 1, (2, 1)), ("HyperConnectionPostMix", 2, (1, 3, 1)),
    ("HyperConnectionPostMix", 3, (2, 1, 3)), ("HyperConnectionPostMix", 3, (1, 3, 3)),
    ("BranchwiseRMSNorm", 0, (2, 0)), ("BranchwiseRMSNorm", 0, (2, 11)), ("BranchwiseRMSNorm", 0, ()),
    ("BranchwiseRMSNorm", 1, (3,)), ("EngramGate", 0, (1, 3, 4, 5)), ("EngramGate", 0, (1, 2, 3, 4, 5)),
    ("EngramGate", 1, (2, 1, 4, 5)), ("EngramGate", 2, (2, 3, 1)), ("EngramGate", 2, (1, 3, 5)),
    ("EngramGate", 3, (1, 5)), ("EngramGate", 4, (4, 1)), ("EngramGate", 5, (5,)),
    ("NGramRepeatBlock", 1, (1, 7)), ("NGramRepeatBlock", 1, (3, 7)), ("MulInteger", 1, (1, 1)),
    ("MulInteger", 3, (2, 3)), ("QLinearReduceMean", 1, (1, 1)), ("QLinearReduceMean", 4, (1, 1)),
    ("QGemm", 4, (1, 4)), ("QGemm", 5, (1, 4)), ("QGemm", 5, ()), ("QGemm", 6, (2, 3)), ("QGemm", 6, (3, 4)),
    ("QGemm", 3, (2, 4)), ("QGemm", 0, (1, 2, 3)),
    ("ConvTransposeWithDynamicPads", 1, (2, 3, 0, 3)), ("ConvTransposeWithDynamicPads", 2, (3,)),
    ("GroupQueryAttention", 3, (1, 2, 4, 8)), ("GroupQueryAttention", 4, (3, 2, 4, 8)),
    ("GroupQueryAttention", 4, None), ("DecoderMaskedMultiHeadAttention", 0, (1, 1, 8)),
    ("DecoderMaskedMultiHeadAttention", 5, (2, 2, 4, 4)), ("DecoderMaskedMultiHeadAttention", 6, None),
    ("DynamicQuantizeLSTM", 1, (2, 4, 12)), ("DynamicQuantizeLSTM", 2, (2, 3, 12)), ("DynamicQuantizeLSTM", 8, ()),
    ("SparseAttention", 2, (1, 1, 16)), ("SparseAttention", 4, (1, 2, 17, 8)), ("GatedRMSNorm", 2, (2, 1)),
]  # fmt: skip


def arrays_of(op_type: str) -> Arrays:
    random = np.random.default_rng(0)
    found: Arrays = []
    for each in VALID[op_type][2]:
        found.append(None if each is None else np.asarray(random.integers(1, 3, each[0])).astype(each[1]))
    if op_type == "ConvTransposeWithDynamicPads":
        found[2] = np.array([1, 0, 0, 1])
    if op_type == "SparseAttention":
        found[5:] = [np.array(values, I32) for values in ([[0, 1]], [[0]], [2], [2])]
    if op_type == "GroupQueryAttention":
        found[5:] = [np.array([4, 4], I32), np.array(5, I32)]
    return found


def run(engine: Any, op_type: str, arrays: Arrays, provider: str, **more: Any) -> list[np.ndarray]:
    attributes, outputs, _ = VALID.get(op_type, ({}, 1, []))
    feeds = {f"i{place}": array for place, array in enumerate(arrays) if array is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    names = ["" if array is None else f"i{place}" for place, array in enumerate(arrays)]
    results = [f"o{place}" for place in range(outputs)]
    node = helper.make_node(op_type, names, results, domain="com.microsoft", **{**attributes, **more})
    graph = helper.make_graph([node], "g", inputs, [ValueInfoProto(name=name) for name in results])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = engine.SessionOptions()
    options.log_severity_level = 4
    return engine.InferenceSession(content, options, providers=[provider]).run(None, feeds)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("op_type", sorted(set(VALID) - REFUSES_ALL))
def test_what_fits_gives_the_same(op_type: str, provider: str) -> None:
    expected = run(onnxruntime, op_type, arrays_of(op_type), PROVIDERS[0])
    for found, wanted in zip(run(ort, op_type, arrays_of(op_type), provider), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op_type", "place", "shape"), BROKEN)
def test_what_does_not_fit_is_refused(op_type: str, place: int, shape: tuple[int, ...] | None) -> None:
    arrays = arrays_of(op_type)
    given = arrays[place]
    assert given is not None
    arrays[place] = None if shape is None else np.resize(given, shape)
    with pytest.raises(Exception, match=op_type):
        run(onnxruntime, op_type, arrays, PROVIDERS[0])
    for provider in PROVIDERS:
        with pytest.raises(ort.errors.OrtError, match=op_type):
            run(ort, op_type, arrays, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("scale", [-1.0, 0.0, 2.5])
def test_a_scale_multiplies_what_multimodal_rotation_turns(scale: float, provider: str) -> None:
    random = np.random.default_rng(0)
    x, cosine, sine = (random.standard_normal(shape).astype(F) for shape in ((2, 3, 16), (9, 2), (9, 2)))
    arrays: Arrays = [x, random.integers(0, 9, (3, 2, 3)), cosine, sine]
    given = {"mrope_section": [1, 1, 0], "num_heads": 2, "rotary_embedding_dim": 4, "scale": scale}
    [expected] = run(onnxruntime, "MRotaryEmbedding", arrays, PROVIDERS[0], **given)
    [found] = run(ort, "MRotaryEmbedding", arrays, provider, **given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_bias_of_columns_may_be_a_column(provider: str) -> None:
    random = np.random.default_rng(0)
    arrays: Arrays = [random.integers(0, 9, shape).astype(np.uint8) for shape in ((2, 3), (3, 5))]
    arrays += [np.array(0.5, F), np.array(0.25, F), None, None, random.standard_normal((5, 1)).astype(F)]
    [expected] = run(onnxruntime, "MatMulIntegerToFloat", arrays, PROVIDERS[0])
    [found] = run(ort, "MatMulIntegerToFloat", arrays, provider)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("op_type", ["GatedRMSNorm", "WordConvEmbedding"])
def test_an_axis_too_many_is_told_in_a_sentence(op_type: str, place: int) -> None:
    arrays = arrays_of(op_type)
    arrays[place] = np.ones((*arrays[place].shape, 1), arrays[place].dtype)  # type: ignore[union-attr]  # it is there
    for provider in PROVIDERS:
        with pytest.raises(ort.errors.OrtError, match=r"expected to have|must have shape|same shape"):
            run(ort, op_type, arrays, provider)
