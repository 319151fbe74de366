"""Attributes that take a few numbers or words: others are refused, and every spelling of one gives its result.

Found by giving every attribute of every operator of the random graphs numbers and words that it does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import ort_core

MS = "com.microsoft"
ENGINES = ("CPUExecutionProvider", "ReferenceExecutionProvider")
Row = tuple[str, str, int, dict[str, np.ndarray | None], dict[str, Any], int]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.1, 1, shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


HALF_TURNS = {"c": numbers(6, 2), "s": numbers(6, 2)}
PACKED = np.array([0, 2, 3], np.int32)
HASHED = {"multipliers": whole(3, 5), "sizes": whole(7, 11)}
# operator, domain, opset, inputs, sound attributes, outputs
NODES: dict[str, Row] = {
    "quantize": ("QuantizeLinear", "", 23, {"x": numbers(4), "scale": np.array(0.1, np.float32),
                                            "point": np.array(3, np.uint8)}, {}, 1),
    "reverse": ("ReverseSequence", "", 17, {"x": numbers(3, 2, 2), "n": whole(1, 2)}, {}, 1),
    "turn": ("RotaryEmbedding", "", 23, {"x": numbers(1, 3, 8), **{k: v[None, :3] for k, v in HALF_TURNS.items()}},
             {"num_heads": 2}, 1),
    "streams": ("MRotaryEmbedding", MS, 1, {"x": numbers(1, 3, 8), "p": np.zeros((3, 1, 3), np.int64), **HALF_TURNS},
                {"num_heads": 2, "mrope_section": [1, 1, 0]}, 1),
    "gemm": ("FusedGemm", MS, 1, {"a": numbers(2, 3), "b": numbers(3, 4)}, {"activation": "Tanh"}, 1),
    "conv": ("FusedConv", MS, 1, {"x": numbers(1, 1, 4, 4), "w": numbers(1, 1, 2, 2)}, {"activation": "Tanh"}, 1),
    "packed conv": ("VarlenCausalConvWithState", MS, 1,
                    {"x": numbers(3, 2), "w": numbers(2, 1, 3), "n": PACKED, "b": None, "state": numbers(2, 2, 2)},
                    {}, 2),
    "hashes": ("NGramHashMapping", MS, 1, {"x": whole(1, 2, 3)[None], **HASHED},
               {"max_ngram_size": 2, "n_head_per_ngram": 2, "pad_id": 0}, 2),
    "packed hashes": ("VarlenNGramHashMapping", MS, 1, {"x": whole(1, 2, 3), **HASHED, "n": PACKED},
                      {"max_ngram_size": 2, "n_head_per_ngram": 2, "pad_id": 0}, 2),
    "words": ("WordConvEmbedding", MS, 1, {"x": np.array([[1, 2, 0]], np.int32), "w": numbers(2, 1, 2, 3),
                                           "b": numbers(2), "c": numbers(5, 3)}, {}, 1),
    "crops": ("CropAndResize", MS, 1, {"x": numbers(1, 2, 5, 5), "r": numbers(3, 4), "i": np.zeros(3, np.int32),
                                       "size": np.array([2, 3], np.int32)}, {}, 1),
    "wider": ("ConvTranspose", "", 17, {"x": numbers(1, 1, 3, 3), "w": numbers(1, 1, 2, 2)}, {"pads": [0] * 4}, 1),
    "wider by inputs": ("ConvTransposeWithDynamicPads", MS, 1,
                        {"x": numbers(1, 1, 3, 3), "w": numbers(1, 1, 2, 2), "p": whole(0, 0, 0, 0)}, {}, 1),
    "shape": ("Reshape", "", 17, {"x": numbers(2, 3), "shape": whole(0, -1)}, {}, 1),
}  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any]]] = [
    *(("quantize", {"precision": number}) for number in (2, 3, 7, 99)),
    *(("reverse", {name: 2}) for name in ("batch_axis", "time_axis")),
    *(("reverse", {name: 3}) for name in ("batch_axis", "time_axis")),
    *(("turn", changed) for changed in ({"num_heads": 0}, {"rotary_embedding_dim": 6})),
    *(("streams", {"rotary_embedding_dim": number}) for number in (-2, 1, 2, 3, 6)),
    ("streams", {"num_heads": 0}),
    *(("gemm", {"activation": word}) for word in ("TANH", "tanh", "", "Bogus")),
    *(("conv", {"activation": word}) for word in ("TANH", "tanh", "", "Bogus", "Softplus")),
    *(("packed conv", changed) for changed in ({"dilation": 0}, {"group_size": 0}, {"group_size": 2})),
    *(("packed conv", {"state_update_capacity": number}) for number in (-1, 1, 9)),
    *(("hashes", {"n_head_per_ngram": number}) for number in (0, 1, 3)),
    *(("packed hashes", {"state_update_capacity": number}) for number in (-1, 1, 9)),
    ("words", {"embedding_size": -2}),
    ("crops", {"mode": "cubic"}),
    ("wider", {"auto_pad": ""}),
    ("wider by inputs", {"auto_pad": "BOGUS"}),
]
SPELLED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(("crops", {"mode": word}, {"mode": "nearest"}) for word in ("NEAREST", "Nearest")),
    *(("words", {name: -1}, {}) for name in ("char_embedding_size", "conv_window_size", "embedding_size")),
    *(("shape", {"allowzero": number}, {}) for number in (-1, 2, 7)),
]


def _content(row: Row, changed: dict[str, Any]) -> bytes:
    op_type, domain, opset, inputs, attributes, outputs = row
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
        if array is not None
    ]
    made = [f"y{place}" for place in range(outputs)]
    given = [name if array is not None else "" for name, array in inputs.items()]
    node = helper.make_node(op_type, given, made, "the_node", domain=domain, **{**attributes, **changed})
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=name) for name in made])
    opsets = [helper.make_opsetid("", max(opset, 17)), helper.make_opsetid(MS, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _run(module: Any, content: bytes, feeds: dict[str, np.ndarray], provider: str) -> list[np.ndarray]:
    options = module.SessionOptions()
    options.log_severity_level = 4
    found = module.InferenceSession(content, options, providers=[provider]).run(None, feeds)
    return [np.asarray(each) for each in found]


def _feeds(row: Row) -> dict[str, np.ndarray]:
    return {name: array for name, array in row[3].items() if array is not None}


@pytest.mark.parametrize("name", NODES)
def test_the_sound_node_runs_to_onnxruntimes_result(name: str) -> None:
    row = NODES[name]
    content, feeds = _content(row, {}), _feeds(row)
    expected = _run(onnxruntime, content, feeds, ENGINES[0])
    for engine in ENGINES:
        for left, right in zip(expected, _run(ort_core, content, feeds, engine), strict=True):
            np.testing.assert_allclose(right, left, rtol=1e-5)


@pytest.mark.parametrize(("name", "changed"), REFUSED)
def test_what_an_attribute_does_not_take_is_refused(name: str, changed: dict[str, Any]) -> None:
    row = NODES[name]
    content, feeds = _content(row, changed), _feeds(row)
    with pytest.raises(Exception, match=r"the_node|Exception during initialization"):
        _run(onnxruntime, content, feeds, ENGINES[0])
    for engine in ENGINES:
        with pytest.raises(ort_core.OrtError, match="the_node"):
            _run(ort_core, content, feeds, engine)


@pytest.mark.parametrize(("name", "spelled", "plain"), SPELLED)
def test_each_spelling_gives_the_result_of_the_plain_one(
    name: str, spelled: dict[str, Any], plain: dict[str, Any]
) -> None:
    row = NODES[name]
    feeds = _feeds(row)
    expected = _run(onnxruntime, _content(row, spelled), feeds, ENGINES[0])
    for engine in ENGINES:
        for changed in (spelled, plain):
            for left, right in zip(expected, _run(ort_core, _content(row, changed), feeds, engine), strict=True):
                np.testing.assert_allclose(right, left, rtol=1e-5)
