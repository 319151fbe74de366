"""Near misses: a fusion that nearly fired is told with what stands in its way, and nothing is changed by asking."""

from __future__ import annotations

import onnx
import pytest

import ort_core as ort
from ort_core.passes.near_misses import NearMiss, counted

GELU = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x) => (float[2, 8] y EXTRA)
    <float root = {ROOT}, float one = {1.0}, float half = {0.5}> {
    d = Div (x, root)
    e = Erf (d)
    a = Add (e, one)
    m = Mul (x, a)
    y = Mul (m, half)
}"""


def _misses(text: str) -> tuple[NearMiss, ...]:
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    assert session.explain().near_misses is None, "only who asks pays"
    found = session.explain(fusions=True).near_misses
    assert found is not None
    return found


def _gelu(root: str = "1.4142135", extra: str = "") -> list[str]:
    text = GELU.replace("ROOT", root).replace(" EXTRA", extra)
    return [each.reason for each in _misses(text) if each.rule.startswith("GeluFusion")]


def test_a_refusal_of_a_rule_is_told() -> None:
    reasons = _gelu()
    assert reasons == ["opset 17 has no Gelu, opset 20 has"], "com.microsoft's Gelu was fused; the standard one was not"


def test_a_constant_that_does_not_fit_is_told_with_its_value() -> None:
    assert any("found the constant 1.5" in reason for reason in _gelu("1.5")), _gelu("1.5")


def test_a_value_that_is_read_from_outside_is_told() -> None:
    reasons = _gelu(extra=", float[2, 8] e")
    assert "all operators fit, but the result of Erf inside it is read from outside, too" in reasons, reasons


def test_a_pattern_of_which_little_is_there_is_no_near_miss() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x, float[2, 8] z) => (float[2, 8] y) {
        y = Mul (x, z)
    }"""
    assert not _misses(text)


def test_a_long_alternative_is_not_near_because_a_short_one_is_short() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x) => (float[2, 8] y)
        <float gain = {2.0}, float bias = {3.0}> {
        m = Mul (x, gain)
        y = Add (m, bias)
    }"""
    assert not [each for each in _misses(text) if each.rule == "GroupNormFusion"], "3 of its 5 operators are missing"


def test_equal_reasons_are_counted_once() -> None:
    misses = [NearMiss("P", "R", f"node {n}", "no", True) for n in range(3)]
    assert [(miss.node, count) for miss, count in counted(misses)] == [("node 0", 3)]


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC"])
def test_passes_that_the_level_leaves_out_miss_nothing(level: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    text = GELU.replace("ROOT", "1.5").replace(" EXTRA", "")
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options)
    misses = session.explain(fusions=True).near_misses
    assert misses is not None
    assert not [each for each in misses if each.partition], "extended passes run at no lower level"
    assert bool(misses) == (level == "ORT_ENABLE_BASIC")


def test_what_stands_in_the_way_of_an_edit_is_told_and_a_node_without_a_name_by_what_it_computes() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y, float[2] z) {
        y = Relu (x)
        z = Identity (y)
    }"""
    (missed,) = _misses(text)
    assert missed.reason == "the graph returns 'z', whose replacement cannot take that name"
    assert missed.node == "node '' (ai.onnx::Identity) that computes 'z'"
