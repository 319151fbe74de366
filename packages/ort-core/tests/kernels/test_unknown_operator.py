"""An operator that nobody knows: the error says where the name is known, what is near, and how to bring it in."""

from __future__ import annotations

import pytest
from onnx import parser

import ort_core as ort


def _error(operator: str, imports: str = '"" : 17, "com.microsoft" : 1, "com.acme" : 1') -> str:
    text = f"<ir_version: 8, opset_import: [{imports}]> g (float[2] x) => (float[2] y) {{ y = {operator}(x) }}"
    with pytest.raises(ort.OrtError) as raised:
        ort.InferenceSession(parser.parse_model(text).SerializeToString())
    return str(raised.value)


@pytest.mark.parametrize(
    ("operator", "near"),
    [
        ("Reluu", "Did you mean 'Relu'"),
        ("com.microsoft.FastGelou", "Did you mean 'FastGelu'"),
        ("FastGelu", "com.microsoft has an operator of that name"),
        ("com.acme.LayerNormalization", "ai.onnx has an operator of that name"),
    ],
)
def test_near_names_and_other_domains_are_named(operator: str, near: str) -> None:
    said = _error(operator)
    assert near in said
    assert "register_custom_ops_library" in said


def test_an_operator_of_a_domain_of_ones_own_is_not_taken_for_a_standard_one() -> None:
    said = _error("com.acme.Foo")
    assert "Did you mean" not in said
    assert "register_custom_ops_library" in said


def test_an_operator_that_came_later_is_a_matter_of_the_opset() -> None:
    said = _error("Gelu")
    assert "ai.onnx has Gelu since version 20, the model imports 17" in said
    assert "register_custom_ops_library" not in said
