"""Nodes with one thing broken: onnxruntime refuses them, and so do the compiler and the kernels, in their own words.

Each row has a sound node, which every engine runs to the same result, and what is changed of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from asking import ask
from node_cases import NodeCase
from onnx import AttributeProto, TensorProto, helper, numpy_helper

MS, ML = "com.microsoft", "ai.onnx.ml"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OTHERS = r"(Index|Value|Type|ZeroDivision|Attribute|Overflow|Key|Axis|Memory|UFuncType)Error:"


@dataclass(frozen=True)
class Row:
    """An operator with its inputs and attributes, and changes that make it impossible: of inputs by index."""

    op_type: str
    domain: str
    opset: int
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any]
    changes: tuple[dict[int | str, Any], ...]
    kinds: tuple[int | None, ...] = (None,)
    shapes: str = "named"
    is_random: bool = field(default=False)

    def case(self, change: dict[int | str, Any]) -> NodeCase:
        """Return the node with a change."""
        given = {**self.attributes, **{k: v for k, v in change.items() if isinstance(k, str)}}
        attributes = tuple(_attribute(name, value) for name, value in given.items() if value is not None)
        inputs = tuple(change.get(index, array) for index, array in enumerate(self.inputs))
        outputs = tuple((f"y{index}", _declared(kind)) for index, kind in enumerate(self.kinds))
        return NodeCase("", self.op_type, self.domain, self.opset, attributes, inputs, outputs)


def _attribute(name: str, value: object) -> onnx.AttributeProto:
    return helper.make_attribute(name, value, attr_type=AttributeProto.INTS if value == [] else None)


def _declared(kind: int | None) -> onnx.TypeProto:
    return onnx.TypeProto() if kind is None else helper.make_tensor_type_proto(kind, None)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.1, 1, shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def one(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def octets(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, 9, shape).astype(np.uint8)


ONE, ZERO = np.array(1, np.float32), np.array(0, np.uint8)
QUANTIZED = (octets(2, 3), ONE, ZERO, octets(2, 3), ONE, ZERO, ONE, ZERO)
VECTOR_SCALES = tuple({index: np.array([value])} for index, value in ((1, ONE), (4, ONE), (6, ONE), (2, ZERO)))
BOXES = (numbers(1, 3, 4), numbers(1, 1, 3), whole(2), numbers(1), numbers(1))
TREE = {
    "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_featureids": [1, 0, 0], "nodes_values": [0.5, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0, 0], "target_nodeids": [1, 2, 0],
    "target_ids": [0, 0, 0], "target_weights": [1.0, 2.0, 0.0], "n_targets": 1,
}  # fmt: skip
SPLIT = {
    "n_targets": 1, "tree_roots": [0], "nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [1],
    "nodes_trueleafs": [1], "nodes_falseleafs": [1], "leaf_targetids": [0, 0],
    "nodes_modes": numpy_helper.from_array(np.array([0], np.uint8)),
    "nodes_splits": numpy_helper.from_array(np.array([0.5], np.float32)),
    "leaf_weights": numpy_helper.from_array(np.array([1, 2], np.float32)),
}  # fmt: skip
IMAGE = numbers(1, 2, 5, 6)
LINEAR = {"coefficients": [1.0] * 6, "intercepts": [0.0, 0.0], "classlabels_ints": [0, 1]}
GATHERED = (octets(3, 16), whole(0, 2), numbers(3, 2), octets(3, 1))

ROWS = (
    Row("QLinearAdd", MS, 1, QUANTIZED, {}, VECTOR_SCALES, (TensorProto.UINT8,)),
    Row("QLinearMul", MS, 1, QUANTIZED, {}, VECTOR_SCALES, (TensorProto.UINT8,)),
    Row("QLinearAveragePool", MS, 1, (octets(1, 1, 4, 4), ONE, ZERO, ONE, ZERO), {"kernel_shape": [2, 2]},
        ({1: numbers(1)}, {"strides": [], "pads": None}, {"pads": [-1, 0, 0, 0]}), (TensorProto.UINT8,)),
    Row("QLinearSoftmax", MS, 1, (octets(2, 3), ONE, ZERO, ONE, ZERO), {"opset": 13, "axis": 1},
        ({"axis": 2}, {"axis": -3}, {0: ZERO}), (TensorProto.UINT8,)),
    Row("MatMulInteger", "", 10, (octets(2, 3), octets(3, 4), octets(1), octets(4)), {},
        ({2: octets(1, 1)}, {3: octets(1, 1)}, {3: octets(3)}), (TensorProto.INT32,)),
    Row("QuantizeLinear", "", 21, (numbers(2, 3), numbers(3), octets(3)), {"axis": 1},
        ({2: octets(1)}, {2: ZERO}, {2: octets(1, 3)}, {2: octets(2)}), (TensorProto.UINT8,)),
    Row("DequantizeLinear", "", 21, (octets(2, 3), numbers(3), octets(3)), {"axis": 1},
        ({2: octets(1)}, {2: ZERO}, {2: octets(1, 3)}, {2: octets(2)}), (FLOAT,)),
    Row("DequantizeLinear", "", 21, (octets(2, 3), ONE, ZERO), {}, ({2: octets(3)}, {2: octets(1, 1)}), (FLOAT,)),
    Row("DynamicQuantizeMatMul", MS, 1, (numbers(2, 3), octets(3, 4), ONE, ZERO, numbers(4)), {},
        ({4: numbers(1)}, {4: ONE}, {4: numbers(3)}), (FLOAT,), "known"),
    Row("MatMulIntegerToFloat", MS, 1, (octets(2, 3), octets(3, 4), ONE, ONE, ZERO, ZERO, numbers(4)), {},
        ({6: numbers(1)}, {6: ONE}, {6: numbers(3)}), (FLOAT,), "known"),
    Row("MatMulNBits", MS, 1, (numbers(2, 16), octets(5, 1, 8), numbers(5, 1)), {"K": 16, "N": 5, "block_size": 16},
        ({2: numbers(1, 5)}, {2: numbers(4)}), (FLOAT,)),
    Row("ConvInteger", "", 10, (octets(1, 2, 4, 4), octets(3, 2, 2, 2)), {},
        ({1: octets(3, 2, 0, 2)}, {"pads": [-1, 0, 0, 0]}, {"pads": [1, 1, 1, 1], "auto_pad": "VALID"}),
        (TensorProto.INT32,), "stated"),
    Row("Conv", "", 22, (IMAGE, numbers(3, 2, 2, 2)), {},
        ({"pads": [0, 0, -1, 0]}, {"pads": [0] * 4, "auto_pad": "SAME_UPPER"}, {0: numbers(1, 2, 1, 6)}), (FLOAT,),
        "fixed"),
    Row("ConvTranspose", "", 22, (IMAGE, numbers(2, 3, 2, 2)), {},
        ({"auto_pad": "BOGUS"}, {"output_shape": [0, 0]}, {"output_shape": [1, 3, 6, 7]},
         {"output_padding": [-1, 0], "strides": [2, 2]}), (FLOAT,), "stated"),
    Row("MaxPool", "", 22, (IMAGE,), {"kernel_shape": [2, 2]}, ({"pads": [-1, 0, 0, 0]}, {"strides": []}), (FLOAT,)),
    Row("MaxUnpool", "", 22, (numbers(1, 1, 2, 2), whole(0, 1, 4, 5).reshape(1, 1, 2, 2), whole(1, 1, 4, 4)),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        ({2: whole(2, 1, 4, 4)}, {"kernel_shape": [0, 2]}, {"kernel_shape": [2, -1]}), (FLOAT,)),
    Row("LRN", "", 13, (IMAGE,), {"size": 3}, ({"size": 0}, {"alpha": 0.0}, {"beta": -1.0}), (FLOAT,)),
    Row("Pad", "", 21, (numbers(2, 3), whole(0, 1, 0, -1)), {"mode": "edge"},
        ({1: whole(0, -3, 0, 0)}, {1: whole(-1, 0, -1, 1)}, {1: whole(0, -2, 0, 1), "mode": "reflect"},
         {1: whole(0, -2, 0, -1), "mode": "wrap"}), (FLOAT,)),
    Row("Pad", MS, 1, (numbers(2, 3), whole(0, 1, 0, -1)), {},
        ({1: whole(0, -4, 0, 0)}, {1: whole(-9, 0, 0, 0)}, {1: whole(0, 3, 0, 0), "mode": "reflect"}), (FLOAT,)),
    Row("Split", "", 18, (numbers(7),), {"num_outputs": 4}, ({0: numbers(1)}, {"num_outputs": None}), (FLOAT,) * 4),
    Row("RoiAlign", "", 16, (IMAGE, numbers(2, 4), whole(0, 0)), {"sampling_ratio": 1}, ({"sampling_ratio": -1},),
        (FLOAT,)),
    Row("TopK", "", 11, (numbers(3, 4), whole(2)), {}, ({1: np.array(2)},), (FLOAT, INT64)),
    Row("Squeeze", "", 13, (numbers(1, 4), whole(0)), {}, ({1: np.array(0)},), (FLOAT,)),
    Row("Reshape", "", 14, (numbers(1, 4), whole(4)), {}, ({1: np.array(4)},), (FLOAT,)),
    Row("Softmax", "", 13, (numbers(2, 3),), {}, ({0: ONE},), (FLOAT,)),
    Row("Dropout", "", 13, (numbers(2, 3), np.array(0.5, np.float32)), {}, ({1: numbers(1)},), (FLOAT,)),
    Row("InstanceNormalization", "", 6, (IMAGE, numbers(2), numbers(2)), {}, ({1: numbers(1, 2)}, {2: numbers(2, 1)}),
        (FLOAT,)),
    Row("BatchNormalization", "", 15, (IMAGE, *(numbers(2),) * 4), {}, ({"training_mode": 1},), (FLOAT,)),
    Row("Gelu", "", 20, (numbers(3),), {}, ({"approximate": "BOGUS"},), (FLOAT,)),
    Row("Einsum", "", 12, (numbers(2, 3, 3),), {"equation": "bii->bi"}, ({0: numbers(2, 0, 3)}, {0: numbers(2, 1, 3)}),
        (FLOAT,)),
    Row("Resize", "", 19, (IMAGE, None, np.array([1, 1, 2, 2], np.float32)), {"mode": "cubic", "exclude_outside": 1},
        ({"mode": "nearest"}, {"keep_aspect_ratio_policy": "BOGUS"}), (FLOAT,)),
    Row("NonMaxSuppression", "", 11, BOXES, {}, ({0: numbers(1, 3, 3)}, {3: np.array([2], np.float32)}), (INT64,)),
    Row("TfIdfVectorizer", "", 9, (whole(1, 2, 1, 2).reshape(2, 2),),
        {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
         "ngram_indexes": [0, 1], "pool_int64s": [1, 2]}, ({0: np.zeros((0, 2), np.int64)},), (FLOAT,)),
    Row("Scaler", ML, 1, (numbers(2, 3),), {"offset": [0.0] * 3, "scale": [1.0] * 3},
        ({"scale": None}, {"offset": None}), (FLOAT,)),
    Row("LinearClassifier", ML, 1, (numbers(2, 3),), LINEAR, ({"intercepts": None}, {"classlabels_ints": None}),
        (INT64, FLOAT)),
    Row("FeatureVectorizer", ML, 1, (numbers(2, 3), numbers(2, 1)), {"inputdimensions": [3, 1]},
        ({"inputdimensions": None},), (FLOAT,)),
    Row("TreeEnsembleRegressor", ML, 1, (numbers(4, 3),), TREE,
        ({0: numbers(3)}, {"target_ids": [0, 0, -1]}, {"target_ids": [0, 0, 9]}, {"n_targets": None},
         {"post_transform": "BOGUS"}), (FLOAT,)),
    Row("TreeEnsemble", ML, 5, (numbers(4, 1),), SPLIT,
        ({"nodes_falseleafs": [0]}, {"tree_roots": [1]}, {"nodes_missing_value_tracks_true": [1, 1]}, {0: numbers(1)}),
        (FLOAT,)),
    Row("GatherBlockQuantized", MS, 1, GATHERED, {"block_size": 16, "bits": 4, "quantize_axis": 1},
        ({2: numbers(3, 1)}, {3: octets(3, 2)}, {3: octets(1, 1)}, {"bits": 3}, {"block_size": 24}), (FLOAT,),
        "stated"),
    Row("CropAndResize", MS, 1, (IMAGE, numbers(1, 4), np.array([0], np.int32), np.array([2, 2], np.int32)), {},
        ({3: np.array([0, 2], np.int32)}, {3: np.array([2, -2], np.int32)}), (FLOAT,)),
    Row("RotaryEmbedding", MS, 1, (numbers(1, 2, 8), np.array([[0, 1]]), numbers(3, 4), numbers(3, 4)), {},
        ({"rotary_embedding_dim": -1}, {"rotary_embedding_dim": 4}), (FLOAT,)),
    Row("SkipLayerNormalization", MS, 1, (numbers(1, 2, 4), numbers(1, 2, 4), numbers(4)), {}, ({"epsilon": -1.0},),
        (FLOAT,)),
    Row("FusedConv", MS, 1, (IMAGE, numbers(3, 2, 2, 2)), {"activation": "LeakyRelu", "activation_params": [0.1]},
        ({"activation_params": None}, {"activation": ""}), (FLOAT,)),
    Row("LinearAttention", MS, 1, (numbers(1, 3, 4), numbers(1, 3, 4), numbers(1, 3, 8)),
        {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear"},
        ({2: numbers(1, 2, 8)}, {2: numbers(1, 3, 0)}, {1: numbers(1, 3, 3)}), (FLOAT, FLOAT)),
    Row("FusedMatMul", MS, 1, (numbers(2, 3, 4), numbers(2, 4, 5)), {},
        ({1: numbers(2, 3, 5)}, {1: numbers(3, 4, 5)}, {"transA": 1}, {"transBatchA": 1, 1: numbers(4, 5)}), (FLOAT,)),
    Row("FusedGemm", MS, 1, (numbers(3, 4), numbers(4, 5)), {"activation": "Relu"},
        ({1: numbers(3, 5)}, {"transB": 1}), (FLOAT,)),
    Row("Range", MS, 1, (one(1), one(5), one(2)), {},
        ({0: whole()}, {1: whole()}, {2: whole()}, {1: whole(5, 6)}), (INT64,)),
    Row("QLinearConcat", MS, 1, (ONE, ZERO, octets(2, 1, 3), ONE, ZERO, octets(2, 2, 3), ONE, ZERO), {"axis": 1},
        ({"axis": 0}, {"axis": 3}, {0: numbers(0)}, {1: octets(0)}, {5: octets(2, 2, 4)}), (TensorProto.UINT8,)),
    Row("MelWeightMatrix", "", 17, (one(4), one(16), one(8000), ONE, np.array(4000, np.float32)), {},
        tuple({index: empty} for index, empty in enumerate((whole(), whole(), whole(), numbers(0), numbers(0)))),
        (FLOAT,)),
    Row("STFT", "", 17, (numbers(1, 64, 1), one(16), numbers(16), one(16)), {"onesided": 1},
        ({1: whole()}, {3: whole()}), (FLOAT,)),
    Row("SoftmaxCrossEntropyLoss", "", 13, (numbers(3, 5), whole(0, 1, 4)), {},
        ({0: numbers(5), 1: one(1)},), (FLOAT, FLOAT)),
    Row("NegativeLogLikelihoodLoss", "", 22, (numbers(3, 5), whole(0, 1, 4)), {},
        ({0: numbers(5), 1: one(1)},), (FLOAT,)),
)  # fmt: skip
CHANGES = [(row, change) for row in ROWS for change in row.changes]


def _name(row: Row, change: dict[int | str, Any]) -> str:
    return f"{row.domain or 'onnx'}-{row.op_type}-" + ",".join(map(str, change))


@pytest.mark.parametrize("row", ROWS, ids=[_name(row, {}) for row in ROWS])
def test_a_sound_node_gives_what_onnxruntime_gives(row: Row) -> None:
    case = row.case({})
    outcome, error, expected = ask("onnxruntime", row.shapes, case)
    assert outcome == "ok", error
    for engine in ("cpu", "reference"):
        outcome, error, found = ask(engine, row.shapes, case)
        assert outcome == "ok", error
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=engine)


@pytest.mark.parametrize(("row", "change"), CHANGES, ids=[_name(*each) for each in CHANGES])
def test_a_broken_node_is_refused_in_own_words(row: Row, change: dict[int | str, Any]) -> None:
    case = row.case(change)
    assert ask("onnxruntime", row.shapes, case)[0] == "refused"
    for engine in ("cpu", "reference"):
        outcome, error, _ = ask(engine, row.shapes, case)
        assert outcome == "refused", engine
        assert not re.search(OTHERS, error), error


@pytest.mark.parametrize("index", [2, 3, 4])
def test_an_empty_limit_of_suppression_is_refused(index: int) -> None:
    """onnxruntime reads what lies behind the empty tensor."""
    row = next(each for each in ROWS if each.op_type == "NonMaxSuppression")
    case = row.case({index: BOXES[index][:0]})
    for engine in ("cpu", "reference"):
        outcome, error, _ = ask(engine, "named", case)
        assert outcome == "refused", engine
        assert "must hold a number" in error, error
