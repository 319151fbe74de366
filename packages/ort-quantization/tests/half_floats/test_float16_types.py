"""Which operators compute in half floats, by ONNX's schemas: all whose data can be, whatever their other values are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, defs, numpy_helper, parser
from onnxruntime.transformers import float16 as theirs

import ort_core
from ort_quantization import float16 as ours
from ort_quantization.bfloat16 import convert_float_to_bfloat16
from ort_quantization.half_floats.float16_types import needs_of

HALVES = {TensorProto.FLOAT16: "tensor(float16)", TensorProto.BFLOAT16: "tensor(bfloat16)"}
NORMALIZED = """
g (float[n, 8] x) => (float[n, 8] y) {
    h = MatMul(x, w)
    z, mean = LayerNormalization <epsilon = 1e-12> (h, gain)
    moved = Sub(h, mean)
    a = Add(z, moved)
    y = MatMul(a, w)
}"""
SMALLER = """
g (float[n, 8] x) => (float[n, 8] y) {
    h = MatMul(x, w)
    n = LayerNormalization(h, gain)
    p = Add(n, h)
    r = Relu(p)
    y = Add(r, x)
}"""


def model_of(text: str, opset: int = 17) -> ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    random = np.random.default_rng(0)
    for name, shape in (("w", (8, 8)), ("gain", (8,))):
        if not any(each.name == name for each in model.graph.initializer):
            weight = random.normal(size=shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


def operators(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def outputs(model: ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What both engines compute."""
    content = model.SerializeToString()
    engines = (ort_core, onnxruntime)
    return [
        each.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0] for each in engines
    ]


@pytest.mark.parametrize("half", HALVES, ids=HALVES.get)
def test_an_operator_whose_data_can_be_half_floats_computes_in_them(half: int) -> None:
    blocked = set()
    for schema in defs.get_all_schemas_with_history():
        allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
        ends = [places[0].type_str for places in (schema.inputs, schema.outputs) if places]
        takes_half = all(HALVES[half] in allowed.get(each, ()) for each in ends)
        if schema.domain == "" and takes_half and needs_of(schema.name, "", schema.since_version, half).is_float:
            blocked.add((schema.name, schema.since_version))
    assert blocked == set()


def test_a_layer_normalization_computes_in_float16_as_onnxruntimes_tool_writes_it() -> None:
    small, other = (each.convert_float_to_float16(model_of(SMALLER)) for each in (ours, theirs))
    assert operators(small) == operators(other)
    assert "Cast" not in operators(small)


def test_the_mean_that_a_layer_normalization_gives_has_float32() -> None:
    """The file that onnxruntime's tool writes does not load: it takes the mean for float16."""
    small = ours.convert_float_to_float16(model_of(NORMALIZED))
    onnx.checker.check_model(small, full_check=True)
    assert [node.output[0] for node in small.graph.node if node.op_type == "Cast"] == ["mean"]
    x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    expected = outputs(model_of(NORMALIZED), x)[1]
    for found in outputs(small, x.astype(np.float16)):
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("g (float[1, 2, 4, 4] x) => (float[a, b, c, d] y) "
         "<float[8] roi = {0, 0, 0, 0, 1, 1, 0.5, 0.5}, int64[4] sizes = {1, 2, 6, 6}> "
         '{ y = Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, , sizes) }', 13),
        ("g (float[3] x) => (float[3] y) <float ratio = {0.5}> { y = Dropout(x, ratio) }", 13),
        ("g (float[3] x) => (float[3] y) <float two = {2.0}> { a = Relu(x) y = Pow(a, two) }", 13),
    ],
    ids=["Resize", "Dropout", "Pow"],
)  # fmt: skip
def test_what_has_no_bfloat16_beside_the_data_stays_float32(text: str, opset: int) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    small = convert_float_to_bfloat16(model, keep_io_types=True)
    onnx.checker.check_model(small, full_check=True)
    x = np.random.default_rng(1).normal(
        size=[each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
    )
    expected, found = (ort_core.InferenceSession(each.SerializeToString()).run(None, {"x": x.astype(np.float32)})[0]
                       for each in (model, small))  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)


def test_types_that_are_missing_beside_blocked_nodes_are_inferred_although_it_is_switched_off() -> None:
    """Olive's mixed precision asks for this; onnxruntime's tool writes a file that does not load."""
    small = ours.convert_float_to_float16(model_of(SMALLER), disable_shape_infer=True, op_block_list=["Add"])
    onnx.checker.check_model(small, full_check=True)
    x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    expected = outputs(model_of(SMALLER), x)[1]
    for found in outputs(small, x.astype(np.float16)):
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)
