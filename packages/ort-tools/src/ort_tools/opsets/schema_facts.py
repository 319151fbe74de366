"""What schemas tell of an operator in one operator set: its version, defaults of attributes, counts and types."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from onnx import AttributeProto, defs, helper

OLDEST, NEWEST = 7, 28
Schema = defs.OpSchema
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
SINGLE = defs.OpSchema.FormalParameterOption.Single


@functools.cache
def find_schema(op_type: str, opset: int) -> Schema | None:
    """Return the schema of an operator of ai.onnx in an operator set, ``None`` where it has none or is deprecated."""
    try:
        schema = defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None
    return None if schema.deprecated else schema


@functools.cache
def changed_in(opset: int) -> frozenset[str]:
    """Return the operators whose version, or whose being there, is another in ``opset`` than in the one before."""
    names = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}
    return frozenset(name for name in names if _version(name, opset) != _version(name, opset - 1))


def _version(op_type: str, opset: int) -> int:
    schema = find_schema(op_type, opset)
    return 0 if schema is None else int(schema.since_version)


def default_of(schema: Schema, name: str) -> AttributeProto | None:
    """Return an attribute's default, ``None`` where it has none."""
    attribute = schema.attributes.get(name)
    if attribute is None or not attribute.default_value.type:
        return None
    return attribute.default_value


def same_value(first: AttributeProto, second: AttributeProto) -> bool:
    """Return whether two attributes have one value."""
    return bool(helper.get_attribute_value(first) == helper.get_attribute_value(second))


def formals(schema: Schema, count: int, *, outputs: bool = False) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield for each of ``count`` inputs, or outputs, the name of its type and the types that it may have."""
    given = list(schema.outputs if outputs else schema.inputs)
    allowed = {each.type_param_str: frozenset(each.allowed_type_strs) for each in schema.type_constraints}
    for place in range(count):
        formal = given[min(place, len(given) - 1)]
        name = formal.type_str
        is_mixed = formal.option == VARIADIC and not formal.is_homogeneous
        yield ("" if is_mixed else name), allowed.get(name, frozenset([name]))


def most_inputs(schema: Schema) -> int:
    """Return how many inputs an operator takes."""
    return 2**31 if schema.inputs and schema.inputs[-1].option == VARIADIC else len(schema.inputs)


def most_outputs(schema: Schema) -> int:
    """Return how many outputs an operator has."""
    return 2**31 if schema.outputs and schema.outputs[-1].option == VARIADIC else len(schema.outputs)
