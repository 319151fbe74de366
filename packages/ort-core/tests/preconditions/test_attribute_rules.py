"""Attributes that no run can follow, refused at load here and in onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741  # as the schemas write them
ML = "ai.onnx.ml"
MS = "com.microsoft"
TFIDF = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2],
         "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 1, 2]}  # fmt: skip
SVM = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "coefficients": [1.0, 2.0], "rho": [0.5],
       "n_supports": 2, "support_vectors": [1.0] * 6}  # fmt: skip
ENCODER = {"keys_int64s": [1, 2], "values_int64s": [3, 4]}
LINEAR = {"coefficients": [1.0] * 6, "intercepts": [0.0, 0.0], "classlabels_ints": [0, 1]}
N_GRAMS = {"min_ngram_size": 1, "max_ngram_size": 3}

B = TensorProto.UINT8
QUANTIZED_LAYER = [(F, [2, 1, 3]), (B, [1, 3, 8]), (B, [1, 2, 8]), (F, [1, 16]), (TensorProto.INT32, [1]),
                   (F, [1, 1, 2]), (F, [1, 1, 2]), (F, [1, 6]), (F, [1]), (B, [1]), (F, [1]), (B, [1])]  # fmt: skip

# operator, domain, inputs (kind, shape), outputs, sound attributes, one that is not
CASES: list[tuple[str, str, list[tuple[int, list[int]]], int, dict[str, Any], dict[str, Any]]] = [
    ("LRN", "", [(F, [1, 3, 2, 2])], 1, {"size": 3}, {"size": 0}),
    ("LRN", "", [(F, [1, 3, 2, 2])], 1, {"size": 3}, {"size": -1}),
    ("Mod", "", [(I, [3]), (I, [3])], 1, {"fmod": 1}, {"fmod": 2}),
    ("CumSum", "", [(F, [3]), (I, [])], 1, {"exclusive": 1}, {"exclusive": 2}),
    ("CumSum", "", [(F, [3]), (I, [])], 1, {"reverse": 1}, {"reverse": -1}),
    ("NonMaxSuppression", "", [(F, [1, 2, 4]), (F, [1, 1, 2])], 1, {"center_point_box": 1}, {"center_point_box": 2}),
    ("TfIdfVectorizer", "", [(I, [4])], 1, TFIDF, {"mode": "BOGUS"}),
    ("TfIdfVectorizer", "", [(I, [4])], 1, TFIDF, {"max_gram_length": 3}),
    ("TfIdfVectorizer", "", [(I, [4])], 1, TFIDF, {"min_gram_length": 3}),
    ("TfIdfVectorizer", "", [(I, [4])], 1, TFIDF, {"weights": [1.0]}),
    ("LabelEncoder", ML, [(I, [3])], 1, ENCODER, {"keys_floats": [1.0, 2.0]}),
    ("LabelEncoder", ML, [(I, [3])], 1, ENCODER, {"values_floats": [1.0, 2.0]}),
    ("OneHotEncoder", ML, [(I, [3])], 1, {"cats_int64s": [1]}, {"cats_int64s": None}),
    ("OneHotEncoder", ML, [(I, [3])], 1, {"cats_int64s": [1]}, {"cats_strings": ["a"]}),
    ("Normalizer", ML, [(F, [2, 3])], 1, {"norm": "L2"}, {"norm": "BOGUS"}),
    ("Scaler", ML, [(F, [2, 3])], 1, {"offset": [0.0] * 3, "scale": [1.0] * 3}, {"offset": [0.0]}),
    ("SVMRegressor", ML, [(F, [2, 3])], 1, SVM, {"kernel_params": [1.0]}),
    ("SVMRegressor", ML, [(F, [2, 3])], 1, SVM, {"kernel_type": "BOGUS"}),
    ("SVMRegressor", ML, [(F, [2, 3])], 1, SVM, {"post_transform": "BOGUS"}),
    ("LinearClassifier", ML, [(F, [2, 3])], 2, LINEAR, {"coefficients": [1.0] * 7}),
    ("LinearClassifier", ML, [(F, [2, 3])], 2, LINEAR, {"post_transform": "BOGUS"}),
    ("BifurcationDetector", MS, [(I, [4]), (I, [2]), (I, [])], 2, N_GRAMS, {"min_ngram_size": -(2**31)}),
    ("BifurcationDetector", MS, [(I, [4]), (I, [2]), (I, [])], 2, N_GRAMS, {"max_ngram_size": 0}),
    ("NGramRepeatBlock", MS, [(I, [1, 4]), (F, [1, 9])], 1, {"ngram_size": 2}, {"ngram_size": 0}),
    ("Imputer", ML, [(F, [2, 3])], 1, {"imputed_value_floats": [1.0]}, {"imputed_value_int64s": [1]}),
    ("ZipMap", ML, [(F, [2, 3])], 1, {"classlabels_int64s": [1, 2, 3]}, {"classlabels_strings": ["a", "b", "c"]}),
    ("DepthToSpace", "", [(F, [1, 4, 2, 2])], 1, {"blocksize": 2, "mode": "CRD"}, {"mode": "crd"}),
    ("DynamicQuantizeLSTM", MS, QUANTIZED_LAYER, 1, {"hidden_size": 2, "clip": 1.0}, {"clip": -1.0}),
    ("LpNormalization", "", [(F, [2, 3])], 1, {"p": 1}, {"p": 3}),
    ("EyeLike", "", [(F, [3, 3])], 1, {"dtype": 7}, {"dtype": 0}),
    ("HannWindow", "", [(I, [])], 1, {"output_datatype": 1}, {"output_datatype": 0}),
    ("MaxPool", "", [(F, [1, 1, 4, 4])], 2, {"kernel_shape": [2, 2], "storage_order": 1}, {"storage_order": 2}),
    ("Optional", "", [], 1, {"type": helper.make_tensor_type_proto(F, [2])}, {"type": None}),
    ("FusedConv", MS, [(F, [1, 1, 4, 4]), (F, [1, 1, 2, 2])], 1, {"activation": "Relu", "auto_pad": "SAME_UPPER"},
     {"pads": [0, 0, 0, 0]}),
]  # fmt: skip
LAYERS = [
    (op_type, attributes)
    for op_type, count in (("RNN", 1), ("GRU", 2), ("LSTM", 3))
    for attributes in (
        {"layout": 2},
        {"layout": -1},
        {"activations": ["Tanh"] * (count + 4)},
        {"activations": ["Bogus"] * count},
    )
] + [(op_type, {"clip": clip}) for op_type in ("GRU", "LSTM") for clip in (0.0, -1.0)]
LAYERS += [(op_type, {"hidden_size": 0}) for op_type in ("GRU", "LSTM")]  # fmt: skip


def _bytes(
    op_type: str, domain: str, inputs: list[tuple[int, list[int]]], outputs: int, attributes: dict[str, Any]
) -> bytes:
    names = [f"x{index}" for index in range(len(inputs))]
    given = [helper.make_tensor_value_info(n, *each) for n, each in zip(names, inputs, strict=True)]
    made = [onnx.ValueInfoProto(name=f"y{index}") for index in range(outputs)]
    kept = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(op_type, names, [m.name for m in made], "the_node", domain=domain, **kept)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3), helper.make_opsetid(MS, 1)]
    model = helper.make_model(helper.make_graph([node], "g", given, made), opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def _layer(op_type: str, **attributes: Any) -> bytes:
    gates, hidden = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type], 5
    weights = [np.ones((1, gates * hidden, size), np.float32) for size in (4, hidden)]
    names = ["y", "y_h", "y_c"][: 3 if op_type == "LSTM" else 2]
    node = helper.make_node(op_type, ["x", "w", "r"], names, "the_node", **{"hidden_size": hidden, **attributes})
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", F, [2, 3, 4])], [onnx.ValueInfoProto(name=n) for n in names],
        [numpy_helper.from_array(each, name) for each, name in zip(weights, "wr", strict=True)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _load(module: Any, content: bytes) -> Any:
    options = module.SessionOptions()
    options.log_severity_level = 4
    return module.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _assert_refused(content: bytes, op_type: str) -> None:
    with pytest.raises(Exception):  # noqa: B017  # onnxruntime raises what it likes
        _load(onnxruntime, content)
    with pytest.raises(ort_core.errors.OrtError, match=rf"the_node.*{op_type}.*(found|must)"):
        _load(ort_core, content)


@pytest.mark.parametrize(
    ("op_type", "domain", "inputs", "outputs", "sound", "broken"), CASES, ids=[f"{c[0]}-{c[5]}" for c in CASES]
)
def test_an_attribute_that_no_run_can_follow_is_refused_at_load(
    op_type: str,
    domain: str,
    inputs: list[tuple[int, list[int]]],
    outputs: int,
    sound: dict[str, Any],
    broken: dict[str, Any],
) -> None:
    for module in (onnxruntime, ort_core):
        _load(module, _bytes(op_type, domain, inputs, outputs, sound))
    _assert_refused(_bytes(op_type, domain, inputs, outputs, {**sound, **broken}), op_type)


@pytest.mark.parametrize(("op_type", "broken"), LAYERS, ids=[f"{o}-{a}" for o, a in LAYERS])
def test_a_recurrent_layer_that_no_run_can_follow_is_refused_at_load(op_type: str, broken: dict[str, Any]) -> None:
    for module in (onnxruntime, ort_core):
        _load(module, _layer(op_type))
    _assert_refused(_layer(op_type, **broken), op_type)


def test_shapes_of_col2im_that_are_no_vectors_are_refused_by_name() -> None:
    block = numpy_helper.from_array(np.zeros((2, 0), np.int64), "block")
    image = numpy_helper.from_array(np.array([5, 5], np.int64), "image")
    graph = helper.make_graph(
        [helper.make_node("Col2Im", ["x", "image", "block"], ["y"], "the_node")], "g",
        [helper.make_tensor_value_info("x", F, [1, 4, 16])], [onnx.ValueInfoProto(name="y")], [image, block],
    )  # fmt: skip
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    with pytest.raises(ort_core.errors.OrtError, match="block_shape"):
        _load(ort_core, content).run(None, {"x": np.zeros((1, 4, 16), np.float32)})


def _attention_that_shows(mode: int, outputs: Sequence[str]) -> bytes:
    node = helper.make_node("Attention", ["q", "k", "v"], outputs, "the_node", qk_matmul_output_mode=mode)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, F, [1, 2, 3, 4]) for name in "qkv"],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("mode", [4, 2**31])
def test_a_stage_of_scores_that_is_not_there_is_refused_where_scores_are_an_output(mode: int) -> None:
    _assert_refused(_attention_that_shows(mode, ["y", "", "", "scores"]), "Attention")


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("mode", [-1, 4, 2**31])
def test_a_stage_of_scores_that_nobody_reads_is_none_of_ours(mode: int, provider: str) -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 3, 4)).astype(np.float32)
    content, feeds = _attention_that_shows(mode, ["y"]), {"q": q, "k": k, "v": v}
    [expected] = _load(onnxruntime, content).run(None, feeds)
    [found] = ort_core.InferenceSession(content, providers=[provider]).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("mask_rows", [1, 2, 3])
def test_a_mask_of_another_batch_writes_past_no_output(mask_rows: int) -> None:
    """The counts of the mask's rows went into an output of the ids' batch."""
    tables = [np.ones(shape, np.float32) for shape in ((6, 4), (3, 4), (2, 4))]
    vectors = [np.ones(4, np.float32)] * 2
    constants = [numpy_helper.from_array(each, f"c{i}") for i, each in enumerate([*tables, *vectors])]
    kinds = [("ids", [1, 3]), ("segments", [1, 3]), ("mask", [mask_rows, 3])]
    names = ["ids", "segments", "c0", "c1", "c2", "c3", "c4", "mask"]
    graph = helper.make_graph(
        [helper.make_node("EmbedLayerNormalization", names, ["y", "counts"], "the_node", domain=MS)], "g",
        [helper.make_tensor_value_info(n, TensorProto.INT32, s) for n, s in kinds],
        [onnx.ValueInfoProto(name=n) for n in ("y", "counts")], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    feeds = {name: np.ones(shape, np.int32) for name, shape in kinds}
    if mask_rows == 1:
        assert _load(ort_core, content).run(["counts"], feeds)[0].tolist() == [3]
        return
    with pytest.raises(ort_core.errors.OrtError, match="mask"):
        _load(ort_core, content).run(None, feeds)


@pytest.mark.parametrize("past", [(1, 2, 3, 8), (1, 2, 3, 4), (1, 2, 3, 16), (1, 1, 3, 8)])
@pytest.mark.parametrize("attributes", [{}, {"causal": 2}])
def test_a_cache_of_other_heads_is_refused(past: tuple[int, ...], attributes: dict[str, int]) -> None:
    """GroupQueryAttention: 2 heads of 8 elements."""
    shapes = {"q": (1, 1, 16), "k": (1, 1, 16), "v": (1, 1, 16), "past_k": past, "past_v": past}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    feeds.update(lengths=np.array([3], np.int32), total=np.array([4], np.int32))
    outputs = ["y", "k_out", "v_out"]
    attributes = {"num_heads": 2, "kv_num_heads": 2, **attributes}
    node = helper.make_node("GroupQueryAttention", list(feeds), outputs, "the_node", domain=MS, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
                      for n, a in feeds.items()], [onnx.ValueInfoProto(name=n) for n in outputs],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    if past == (1, 2, 3, 8) and "causal" not in attributes:
        for module in (onnxruntime, ort_core):
            np.testing.assert_allclose(_load(module, content).run(["y"], feeds)[0], np.ones((1, 1, 16)), rtol=1e-6)
        return
    with pytest.raises(Exception, match=r"past_key|causal"):
        _load(onnxruntime, content).run(None, feeds)
    with pytest.raises(ort_core.errors.OrtError, match=r"past_key|causal"):
        _load(ort_core, content).run(None, feeds)


def test_attributes_that_a_call_of_a_function_gives_are_not_missed() -> None:
    inner = helper.make_node("Scaler", ["x"], ["y"], "the_node", domain=ML)
    for name in ("offset", "scale"):
        inner.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=name, type=onnx.AttributeProto.FLOATS))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Scaled", ["x"], ["y"], [inner], opsets[:2], ["offset", "scale"])
    call = helper.make_node("Scaled", ["x"], ["y"], domain="own", offset=[1.0, 2.0], scale=[3.0, 4.0])
    infos = [helper.make_tensor_value_info(name, F, [2, 2]) for name in ("x", "y")]
    graph = helper.make_graph([call], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9)
    feeds = {"x": np.array([[1, 2], [3, 4]], np.float32)}
    for module in (onnxruntime, ort_core):
        found = _load(module, model.SerializeToString()).run(None, feeds)[0]
        np.testing.assert_array_equal(found, [[0, 0], [6, 8]])
