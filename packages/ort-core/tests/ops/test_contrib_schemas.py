"""Schemas of onnxruntime's own operators against those in onnxruntime."""

from __future__ import annotations

import onnx
import pytest

from ort_core.ir.attributes import AttributeKind
from ort_core.ops.contrib.notation import parse_schemas
from ort_core.ops.contrib_schemas import contrib_schemas, find_contrib_schema
from ort_core.ops.schema import ParameterOption

state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state", reason="onnxruntime is not installed")


@pytest.fixture(scope="module")
def reference() -> dict[tuple[str, str, int], object]:
    """onnxruntime's schemas."""
    return {(s.domain, s.name, s.since_version): s for s in state.get_all_operator_schema()}


def parameters(parameters: object) -> list[tuple[object, ...]]:
    return [(p.name, p.typeStr.replace(" ", ""), p.option.name.lower(), p.isHomogeneous) for p in parameters]  # type: ignore[attr-defined]  # a pybind list


def test_every_schema_equals_onnxruntimes(reference):
    for schema in contrib_schemas():
        other = reference[schema.domain, schema.op_type, schema.since_version]
        for ours, theirs in ((schema.inputs, other.inputs), (schema.outputs, other.outputs)):
            mine = [(p.name, p.type_text, p.option.value, p.is_homogeneous) for p in ours]
            assert mine == parameters(theirs), schema.op_type
        allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in other.type_constraints}
        assert schema.type_constraints == allowed, schema.op_type
        assert schema.is_deprecated == other.deprecated, schema.op_type
        assert schema.attributes.keys() == other.attributes.keys(), schema.op_type


def test_every_attribute_equals_onnxruntimes(reference):
    for schema in contrib_schemas():
        other = reference[schema.domain, schema.op_type, schema.since_version]
        for name, theirs in other.attributes.items():
            ours = schema.attributes[name]
            assert (ours.kind.name, ours.is_required) == (theirs.type.name, theirs.required), (schema.op_type, name)
            default = None
            if theirs._default_value:
                default = onnx.helper.get_attribute_value(onnx.AttributeProto.FromString(theirs._default_value))
                default = default.decode() if isinstance(default, bytes) else default
            assert (None if ours.default is None else ours.default.value) == default, (schema.op_type, name)


def test_no_operator_of_onnxruntime_is_missing(reference):
    known = {(s.domain, s.op_type) for s in contrib_schemas()}
    missing = [key for key in reference if key[0] in ("com.microsoft", "com.microsoft.nchwc") and key[:2] not in known]
    assert missing == []


def test_old_operators_of_the_standard_domain_are_found_by_opset():
    assert find_contrib_schema("", "Affine", 9).is_deprecated is False
    assert find_contrib_schema("", "Affine", 12).is_deprecated is True
    assert find_contrib_schema("", "SimplifiedLayerNormalization", 17) is not None
    assert find_contrib_schema("com.microsoft", "NoSuchOperator", 1) is None


def test_notation_says_options_defaults_and_groups():
    (schema,) = parse_schemas(
        "F@3(a:T b:T? c:tensor(int64)*~) -> (y:T) | k:int=2 s:string! | T: NUMBERS seq(bool)", "d"
    )
    assert [p.option for p in schema.inputs] == list(ParameterOption)
    assert not schema.inputs[2].is_homogeneous
    assert schema.attributes["k"].default.value == 2
    assert schema.attributes["s"].is_required
    assert schema.attributes["s"].kind is AttributeKind.STRING
    assert {"tensor(float16)", "seq(bool)"} <= schema.type_constraints["T"]
    assert schema.since_version == 3


def test_notation_refuses_what_it_cannot_read():
    with pytest.raises(ValueError, match="not an operator schema"):
        list(parse_schemas("F(a:T) | | T: float", "d"))
