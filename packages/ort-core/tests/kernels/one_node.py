"""Models of one node of com.microsoft for tests: its inputs named by their feeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import ort_core as ort

Array = np.ndarray


def model_of(op_type: str, inputs: dict[str, Array], kinds: tuple[int, ...], **attributes: Any) -> bytes:
    """Return a model of one node; a kind of 0 leaves an output out, an input ``None`` is left out."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in inputs.items()
        if array is not None
    ]
    given = [name if array is not None else "" for name, array in inputs.items()]
    names = [f"y{index}" if kind else "" for index, kind in enumerate(kinds)]
    outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(names, kinds, strict=True) if kind]
    node = helper.make_node(op_type, given, names, domain="com.microsoft", **attributes)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "one", infos, outputs)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def run(op_type: str, inputs: dict[str, Array], kinds: tuple[int, ...], **attributes: Any) -> list[Array]:
    """Return the node's results."""
    content = model_of(op_type, inputs, kinds, **attributes)
    feeds = {name: array for name, array in inputs.items() if array is not None}
    return ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)


def normal(*shape: int, seed: int = 0) -> Array:
    """Return float32 from the normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    """Return float64."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x.astype(np.float64)))
