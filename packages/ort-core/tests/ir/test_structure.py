"""The digest of a model's structure tells any difference of an attribute, and takes long lists at once."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from ort_core.ir.model import Model
from ort_core.ir.structure import ModelStructure
from ort_core.onnx_io.load import load_model

Attributes = dict[str, object]


def model_of(attributes: Attributes) -> Model:
    """Return a model of one node, of an operator that nobody knows."""
    node = helper.make_node("Own", ["x"], ["y"], domain="own.domain", **attributes)
    sides = [helper.make_tensor_value_info(name, 1, ["N"]) for name in "xy"]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own.domain", 1)]
    graph = helper.make_graph([node], "g", sides[:1], sides[1:])
    return load_model(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def digest_of(attributes: Attributes) -> bytes:
    return ModelStructure(model_of(attributes)).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": [1, 2], "b": [3]}, {"a": [1], "b": [2, 3]}),
        ({"a": [1, 2]}, {"a": [1, 3]}),
        ({"a": [1]}, {"a": 1}),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": [0.0]}, {"a": [-0.0]}),
        ({"a": [1.0]}, {"a": [float(np.nextafter(np.float32(1), np.float32(2)))]}),
        ({"a": ["1", "2"]}, {"a": ["1', '2"]}),
        ({"a": "1"}, {"a": 1}),
        ({"a": ["x"]}, {"b": ["x"]}),
    ],
)
def test_any_difference_of_an_attribute_is_another_digest(one: Attributes, other: Attributes) -> None:
    assert digest_of(one) == digest_of(dict(one))
    assert digest_of(one) != digest_of(other)


def test_numbers_of_a_forest_go_into_the_digest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    add = ModelStructure._add

    def counted(self: ModelStructure, *facts: object) -> None:
        added.append(len(facts))
        add(self, *facts)

    monkeypatch.setattr(ModelStructure, "_add", counted)
    digest_of({"nodes_values": list(range(10_000))})
    assert len(added) < 20, "each number goes into it by itself"
