"""GatedDeltaNet with one size of one input changed: onnxruntime and we refuse the same, or give equal shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import ort_core

Inputs = dict[int, np.ndarray]
_CLASSES = onnxruntime.capi.onnxruntime_pybind11_state
REFUSALS = (ort_core.errors.OrtError, _CLASSES.Fail, _CLASSES.InvalidArgument, _CLASSES.RuntimeException)
HEADS, VALUE_HEADS, WIDTH, DEPTH = 2, 4, 3, 5
FORMS = {  # tokens, attributes, whether queries are packed, requests are told, decays are by element
    "plain": ((6,), {"update_rule": "linear"}, False, False, False),
    "requests": ((6,), {"update_rule": "gated_delta"}, False, True, True),
    "batch": ((2, 3), {"update_rule": "gated", "gate_activation": "softplus"}, False, False, False),
    "packed": ((6,), {"update_rule": "delta", "state_update_capacity": 2}, True, True, False),
    "packed batch": ((2, 3), {"update_rule": "gated_delta", "gate_activation": "kda"}, True, False, True),
    "captured": ((2, 3), {"update_rule": "gated_delta", "state_update_capacity": 2}, False, False, True),
}


def fitting(form: str) -> tuple[Inputs, dict[str, object]]:
    """Return inputs by their places, and attributes, that fit."""
    tokens, attributes, packed, requests, by_element = FORMS[form]
    inputs = {0: np.zeros((*tokens, HEADS, WIDTH), np.float32)}
    if packed:
        inputs[0] = np.zeros((*tokens, 2 * HEADS * WIDTH + VALUE_HEADS * DEPTH), np.float32)
    else:
        inputs[1], inputs[2] = inputs[0], np.zeros((*tokens, VALUE_HEADS, DEPTH), np.float32)
    if requests:
        inputs[3] = np.array([0, 2, 6], np.int32)
    if "gated" in str(attributes["update_rule"]):
        inputs[4] = np.zeros((*tokens, VALUE_HEADS, *([WIDTH] if by_element else [])), np.float32)
    if "delta" in str(attributes["update_rule"]):
        inputs[5] = np.zeros((*tokens, VALUE_HEADS), np.float32)
    inputs[6] = np.zeros((2, VALUE_HEADS, DEPTH, WIDTH), np.float32)
    if "gate_activation" in attributes:
        inputs[7] = np.zeros(VALUE_HEADS, np.float32)
        inputs[8] = np.zeros((VALUE_HEADS, *([WIDTH] if by_element else [])), np.float32)
    if "state_update_capacity" in attributes:
        inputs[9], inputs[10] = np.array([1, 2], np.int32), np.array([1], np.int32)
    return inputs, attributes


def changed(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array with each axis longer by one, shorter by one, of one element and empty, and with other ranks."""
    for axis, size in enumerate(array.shape):
        yield np.concatenate([array, np.take(array, [-1], axis)], axis)
        yield np.take(array, [], axis)
        if size > 1:
            yield np.delete(array, -1, axis)
            yield np.take(array, [0], axis)
    yield array[None]
    yield array[..., None]
    if array.ndim > 1:
        yield array.reshape(-1)
        yield array.reshape(-1, *array.shape[2:])
        yield array[0]


def shapes(engine: object, inputs: Inputs, attributes: dict[str, object]) -> list[tuple[int, ...]] | None:
    """Return the shapes of an engine's results, ``None`` where it refuses."""
    names = [f"i{place}" if place in inputs else "" for place in range(max(inputs) + 1)]
    feeds = {f"i{place}": array for place, array in inputs.items()}
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in feeds.items()
    ]
    outputs = ["y", "state", *(["captured"] if "state_update_capacity" in attributes else [])]
    node = helper.make_node("GatedDeltaNet", names, outputs, domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info(name, 1, None) for name in outputs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = engine.SessionOptions()
    options.log_severity_level = 4
    try:
        session = engine.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return [found.shape for found in session.run(None, feeds)]
    except REFUSALS:
        return None


@pytest.mark.parametrize(("form", "place"), [(form, place) for form in FORMS for place in fitting(form)[0]])
def test_sizes_are_refused_where_onnxruntime_refuses_them(form: str, place: int) -> None:
    inputs, attributes = fitting(form)
    assert shapes(ort_core, inputs, attributes) == shapes(onnxruntime, inputs, attributes)
    assert shapes(ort_core, inputs, attributes) is not None
    for array in changed(inputs[place]):
        given = {**inputs, place: np.ascontiguousarray(array, inputs[place].dtype)}
        expected = shapes(onnxruntime, given, attributes)
        assert shapes(ort_core, given, attributes) == expected, f"input {place} of shape {array.shape}"
