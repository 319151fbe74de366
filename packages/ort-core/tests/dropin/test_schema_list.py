"""The list of schemas under the drop-in holds onnxruntime's own operators, as onnxruntime describes them."""

from __future__ import annotations

import onnx
from onnxruntime.capi import _pybind_state as oracle

from ort_core.onnx_io.adapters import all_operator_schemas

DOMAINS = ("com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml")


_PARAMETER_NAMES = (("name",), ("type_str", "typeStr"), ("option",), ("is_homogeneous", "isHomogeneous"))


def _read(parameter: object, *names: str) -> object:
    """Return the first attribute that there is: onnx has renamed some, onnxruntime has the old names."""
    found = next(getattr(parameter, name) for name in names if hasattr(parameter, name))
    return found.replace(" ", "") if isinstance(found, str) else getattr(found, "name", found)


def described(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    """Return what programs read of a schema, without its texts."""

    def parameters(each: list[object]) -> list[tuple[object, ...]]:
        return [tuple(_read(p, *names) for names in _PARAMETER_NAMES) for p in each]

    attributes = {name: (each.type.name, each.required) for name, each in schema.attributes.items()}
    constraints = {each.type_param_str: sorted(each.allowed_type_strs) for each in schema.type_constraints}
    counts = (schema.max_input, schema.max_output)
    return parameters(schema.inputs), parameters(schema.outputs), attributes, constraints, counts


def test_the_schemas_of_onnxruntimes_domains_are_its_own() -> None:
    ours = {(each.domain, each.name, each.since_version): each for each in all_operator_schemas()}
    theirs = [each for each in oracle.get_all_operator_schema() if each.domain in DOMAINS]
    assert len(theirs) > 150
    for each in theirs:
        assert described(ours[each.domain, each.name, each.since_version]) == described(each), each.name


def test_defaults_and_required_attributes_are_told() -> None:
    ours = {each.name: each for each in all_operator_schemas() if each.domain == "com.microsoft"}
    attributes = ours["GroupQueryAttention"].attributes
    assert attributes["num_heads"].required
    assert onnx.helper.get_attribute_value(attributes["local_window_size"].default_value) == -1
