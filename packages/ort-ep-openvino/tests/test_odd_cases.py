"""Cases at the edges of operators: what OpenVINO computes otherwise than ONNX is refused, what is beside it right."""

from __future__ import annotations

import re
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

pytestmark = pytest.mark.usefixtures("sdk")
GENERATOR = np.random.default_rng(17)
NAME = "OpenVINOExecutionProvider"


def floats(*sizes: int) -> np.ndarray:
    return GENERATOR.standard_normal(sizes).astype(np.float32)


X, BYTES = floats(2, 3, 4), np.array([4, 200, 1], np.uint8)
QKV = [floats(1, 2, 3, 4)] * 3
RECURRENT = [floats(1, 8, 3), floats(1, 8, 2)]
TRANSPOSED = [floats(1, 2, 3, 3), floats(2, 2, 1, 3)]
THETA = floats(1, 2, 3)
WRONG = {
    "a shift that loses bits": ("BitShift", 21, [BYTES, BYTES], {"direction": "LEFT"}, "saturates"),
    "a softmax of several axes": ("Softmax", 11, [X], {"axis": 1}, "several axes"),
    "a hardmax of several axes": ("Hardmax", 12, [X], {}, "several axes"),
    "a bias that is no integer": ("LRN", 21, [X], {"size": 3, "alpha": 0.3, "bias": 1.5}, "down to an integer"),
    "an even number of channels": ("LRN", 21, [X], {"size": 2, "alpha": 0.3}, "even number"),
    "gates that are coupled": ("LSTM", 14, [floats(2, 1, 3), *RECURRENT], {"hidden_size": 2, "input_forget": 1},
                               "input_forget"),
    "causality behind a past": ("Attention", 24, [QKV[0][:, :, :2], *QKV[:2], None, *QKV[:2]], {"is_causal": 1},
                                "behind a past"),
    "a mask of one key": ("Attention", 23, [*QKV, np.array([[True], [False], [True]])], {}, "shorter than the keys"),
    "windows that do not meet": ("ConvTranspose", 21, TRANSPOSED, {"strides": [2, 1], "auto_pad": "SAME_UPPER"},
                                 "do not meet"),
    "a result that is cut": ("ConvTranspose", 21, TRANSPOSED, {"output_shape": [3, 4]}, "output_shape"),
    "a window beyond the padding": ("AveragePool", 19, [floats(1, 1, 4)],
                                    {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "count_include_pad": 1},
                                    "beyond the padding"),
    "a norm of windows rounded up": ("LpPool", 21, [floats(1, 1, 4)],
                                     {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, "ceil_mode"),
    "a grid of one row": ("AffineGrid", 20, [THETA, np.array([1, 1, 1, 3])], {"align_corners": 1}, "align_corners"),
    "a scalar that stays one": ("Expand", 21, [np.array(2, np.float32), np.array([], np.int64)], {}, "scalar"),
}  # fmt: skip
"""Operator, opset, inputs, attributes and a word of the reason, by what OpenVINO takes otherwise."""
RIGHT = {
    "a shift to the right": ("BitShift", 21, [BYTES, BYTES % 8], {"direction": "RIGHT"}),
    "a softmax of the last axis": ("Softmax", 11, [X], {"axis": 2}),
    "a softmax of one axis": ("Softmax", 13, [X], {"axis": 0}),
    "an odd number of channels": ("LRN", 21, [X], {"size": 3, "alpha": 0.3, "bias": 2.0}),
    "four gates": ("LSTM", 14, [floats(2, 1, 3), *RECURRENT], {"hidden_size": 2}),
    "causality of as many queries as keys": ("Attention", 24, [*QKV, None, *QKV[:2]], {"is_causal": 1}),
    "a past without causality": ("Attention", 24, [*QKV, None, *QKV[:2]], {}),
    "a mask of all keys": ("Attention", 23, [*QKV, np.array([[True, False, True]] * 3)], {}),
    "windows that meet": ("ConvTranspose", 21, TRANSPOSED, {"strides": [1, 2], "auto_pad": "SAME_LOWER"}),
    "a window that ends in the padding": ("AveragePool", 19, [floats(1, 1, 4)],
                                          {"kernel_shape": [3], "strides": [2], "pads": [0, 1], "ceil_mode": 1,
                                           "count_include_pad": 1}),
    "a result that is larger than it comes": ("ConvTranspose", 21, TRANSPOSED, {"strides": [1, 2],
                                                                               "output_shape": [3, 8]}),
    "a result as large as it comes": ("ConvTranspose", 21, TRANSPOSED, {"output_shape": [3, 5]}),
    "a window rounded up": ("AveragePool", 19, [floats(1, 1, 4)],
                            {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    "a grid of two rows": ("AffineGrid", 20, [THETA, np.array([1, 1, 2, 3])], {"align_corners": 1}),
}  # fmt: skip


def model_of(op_type: str, opset: int, inputs: list, attributes: dict) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one node, its integers constants, and what it is fed."""
    named = {f"i{place}": array for place, array in enumerate(inputs) if array is not None}
    names = [f"i{place}" if array is not None else "" for place, array in enumerate(inputs)]
    feeds = {name: array for name, array in named.items() if array.dtype != np.int64}
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in named.items() if name not in feeds],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model.SerializeToString(), feeds


def session_on(model: bytes, *providers: str) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of placement: it is asserted
        return ort.InferenceSession(model, settings, providers=list(providers), enable_fallback=False)


@pytest.mark.parametrize("name", WRONG)
def test_what_openvino_computes_otherwise_is_refused(name: str) -> None:
    op_type, opset, inputs, attributes, why = WRONG[name]
    model, _ = model_of(op_type, opset, inputs, attributes)
    report = session_on(model, NAME, "ReferenceExecutionProvider").explain()
    assert not report.on(NAME)
    reasons = [each.reason for node in report.nodes for each in node.refusals if each.provider == NAME]
    assert re.search(why, reasons[0]), reasons


@pytest.mark.parametrize("name", RIGHT)
def test_what_lies_beside_it_is_claimed_and_right(name: str) -> None:
    model, feeds = model_of(*RIGHT[name])
    own = session_on(model, NAME, "ReferenceExecutionProvider")
    assert own.explain().on(NAME)
    expected = session_on(model, "ReferenceExecutionProvider").run(None, feeds)[0]
    facts = compare(own.run(None, feeds)[0], expected, "approximate")
    assert facts.passes, facts
