"""Operands of old opsets: before 7, B lies within A; before 8, operands of Max, Mean, Min and Sum have one shape.

onnxruntime has Max, Mean, Min and Sum of opset 6 and no Add of it, so the schema's words stand beside Add here.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import ort_core as ort

Shape = tuple[int, ...]
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
PAIRS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 3, 4), (3,)), ((2, 3, 4), (2, 3)), ((2, 3, 4), ()), ((3, 3), (3,)),
    ((2, 3, 4), (1, 4)), ((4,), (2, 4)), ((2, 1), (2, 3)), ((6, 16, 18), (16,)), ((1024,), (2, 1024)), ((0, 3), (3,)),
)  # fmt: skip
FORMS = [
    {name: value for name, value in (("broadcast", flag), ("axis", axis)) if value is not None}
    for flag, axis in itertools.product((None, 0, 1), (None, 0, 1, -1))
]


def model(op_type: str, shapes: tuple[Shape, ...], opset: int, **attributes: Any) -> bytes:
    names = [f"i{place}" for place in range(len(shapes))]
    nodes = [helper.make_node(op_type, names, ["x"], **attributes), helper.make_node("Relu", ["x"], ["y"])]
    inputs = [helper.make_tensor_value_info(n, 1, [None] * len(s)) for n, s in zip(names, shapes, strict=True)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3).SerializeToString()


def feeds_of(shapes: tuple[Shape, ...]) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0)
    return {f"i{place}": numbers.standard_normal(shape).astype(np.float32) for place, shape in enumerate(shapes)}


def subtracted(a: np.ndarray, b: np.ndarray, form: dict[str, int]) -> np.ndarray | None:
    """Return what the schema of Sub 6 says, ``None`` where it says nothing."""
    if not form.get("broadcast"):
        return a - b if a.shape == b.shape else None
    axis = form.get("axis", a.ndim - b.ndim)
    start = axis + a.ndim if axis < 0 else axis
    if not 0 <= start <= a.ndim - b.ndim:
        return None
    if any(size not in (1, other) for size, other in zip(b.shape, a.shape[start:], strict=False)):
        return None
    return a - b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_the_second_operand_lies_within_the_first_as_the_schema_says(
    shapes: tuple[Shape, Shape], form: dict[str, int]
) -> None:
    feeds = feeds_of(shapes)
    expected = subtracted(feeds["i0"], feeds["i1"], form)
    session = ort.InferenceSession(model("Sub", shapes, 6, **form), providers=[PROVIDERS[len(shapes[0]) % 2]])
    if expected is None:
        with pytest.raises(ort.errors.OrtError, match="Sub: "):
            session.run(None, feeds)
        return
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.maximum(expected, 0))


@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), (2, 3), ()), ((6, 200),) * 3], ids=str)
@pytest.mark.parametrize("opset", [6, 7, 8])
@pytest.mark.parametrize("op_type", ["Max", "Mean", "Min", "Sum"])
def test_several_operands_broadcast_from_opset_8_on(op_type: str, opset: int, shapes: tuple[Shape, ...]) -> None:
    content, feeds = model(op_type, shapes, opset), feeds_of(shapes)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for provider in PROVIDERS:
        ours = ort.InferenceSession(content, providers=[provider])
        if opset < 8 and len(set(shapes)) > 1:
            for session in (theirs, ours):
                with pytest.raises(Exception, match="same shape"):
                    session.run(None, feeds)
            continue
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-6)
