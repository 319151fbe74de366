"""The rule where no adapter is needed: a node keeps its form, if the other operator set has it.

A default that changed is written out. What an older form does not have is left out where it says what the older form
means anyway, and else is a refusal: an attribute, a value of one, an input, an output, a type.
"""

from __future__ import annotations

from onnx import TensorProto, TypeProto, helper

from ort_tools.opsets.node_view import NodeView
from ort_tools.opsets.schema_facts import (
    SINGLE,
    Schema,
    default_of,
    find_schema,
    formals,
    most_inputs,
    most_outputs,
    same_value,
)

_FLOAT8 = ("float8", "float4", "float6")
NEWER_VALUES = {  # values of attributes that came later than the attribute: since which opset
    ("Pad", "mode", "wrap"): 19,
    ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"): 19,
    ("ScatterElements", "reduction", "max"): 18,
    ("ScatterElements", "reduction", "min"): 18,
    ("ScatterND", "reduction", "max"): 18,
    ("ScatterND", "reduction", "min"): 18,
}
ENDED_VALUES = {("Resize", "coordinate_transformation_mode", "tf_half_pixel_for_nn"): 13}  # gone from which opset on


def carry_over(view: NodeView) -> None:
    """Bring a node's defaults and attributes to the target's form. Raises ``OpsetRefusal``: it has none."""
    node = view.node
    before, behind = find_schema(node.op_type, view.source), find_schema(node.op_type, view.target)
    if behind is None:
        raise view.refuse("the operator is not in it")
    if before is not None and before.since_version != behind.since_version:
        _write_defaults(view, before, behind)
    for attribute in list(node.attribute):
        if attribute.name not in behind.attributes:
            default = None if before is None else default_of(before, attribute.name)
            if attribute.ref_attr_name or not _says_nothing(view, attribute.name, default):
                raise view.refuse(f"attribute {attribute.name!r}{_shown(attribute)} has no other form")
            view.drop(attribute.name)
        elif attribute.type == attribute.STRING:
            _check_value(view, attribute.name, attribute.s.decode())


def _write_defaults(view: NodeView, before: Schema, behind: Schema) -> None:
    given = {each.name for each in view.node.attribute}
    for name in before.attributes:
        old, new = default_of(before, name), default_of(behind, name)
        if name in given or old is None or name not in behind.attributes:
            continue
        if new is None or not same_value(old, new):
            view.put(name, helper.get_attribute_value(old))


def _says_nothing(view: NodeView, name: str, default: object) -> bool:
    """Whether an attribute that the target does not have says what the target means without it."""
    attribute = view.find(name)
    if attribute is None:
        return True
    if default is not None and same_value(attribute, default):  # type: ignore[arg-type]  # an AttributeProto
        return True
    if name == "dilations":
        return set(attribute.ints) <= {1}
    if name == "saturate":
        return not any(each in _type_text(view.type_of(view.node.output[0])) for each in _FLOAT8)
    if name in ("round_mode", "seed", "storage_order", "layout"):
        return name == "seed" or (name == "storage_order" and not view.has_output(1))
    return False


def _shown(attribute: object) -> str:
    try:
        value = helper.get_attribute_value(attribute)  # type: ignore[arg-type]  # an AttributeProto
    except ValueError:
        return ""
    return (
        f" ({value.decode() if isinstance(value, bytes) else value})" if isinstance(value, (int, float, bytes)) else ""
    )


def _check_value(view: NodeView, name: str, value: str) -> None:
    key = (view.node.op_type, name, value)
    if view.target < NEWER_VALUES.get(key, 0) or view.target >= ENDED_VALUES.get(key, 99):
        raise view.refuse(f"attribute {name!r} has no value {value!r}")


def check_form(view: NodeView) -> None:
    """Check counts and types of a node against the target's schema. Raises ``OpsetRefusal``: one does not fit."""
    node = view.node
    schema = find_schema(node.op_type, view.target)
    if schema is None:
        raise view.refuse("the operator is not in it")
    while node.input and not node.input[-1]:
        node.input.pop()
    while node.output and not node.output[-1]:
        node.output.pop()
    if len(node.input) > most_inputs(schema):
        raise view.refuse(f"it has no input number {most_inputs(schema) + 1}, which is given as {node.input[-1]!r}")
    if len(node.output) > most_outputs(schema):
        raise view.refuse(f"it has no output number {most_outputs(schema) + 1}, which is read as {node.output[-1]!r}")
    for place, formal in enumerate(schema.inputs):
        if formal.option == SINGLE and not view.input(place):
            raise view.refuse(f"it needs the input {formal.name!r}, which is left out")
    missing = [name for name, each in schema.attributes.items() if each.required and view.find(name) is None]
    if missing:
        raise view.refuse(f"it needs the attribute {missing[0]!r}")
    bound: dict[str, str] = {}
    for names, outputs in ((node.input, False), (node.output, True)):
        for name, (parameter, allowed) in zip(names, formals(schema, len(names), outputs=outputs), strict=True):
            found = _type_text(view.type_of(name)) if name else ""
            if not found:
                continue
            if found not in allowed:
                raise view.refuse(f"{'output' if outputs else 'input'} {name!r} of type {found} is none of its types")
            if parameter and bound.setdefault(parameter, found) != found:
                raise view.refuse(f"{name!r} of type {found} would have to be {bound[parameter]}, as others are")


def _type_text(found: TypeProto | None) -> str:
    """Return a type as schemas write it, empty where it is not known."""
    kind = None if found is None else found.WhichOneof("value")
    if found is None or kind is None:
        return ""
    if kind == "tensor_type":
        return f"tensor({_element_text(found.tensor_type.elem_type)})" if found.tensor_type.elem_type else ""
    if kind == "sequence_type":
        inner = _type_text(found.sequence_type.elem_type)
        return inner and f"seq({inner})"
    if kind == "optional_type":
        inner = _type_text(found.optional_type.elem_type)
        return inner and f"optional({inner})"
    return ""


def _element_text(number: int) -> str:
    return TensorProto.DataType.Name(number).lower()
