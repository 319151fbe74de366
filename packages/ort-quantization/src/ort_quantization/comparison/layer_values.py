"""The values of a float model that a quantized model has, too, under whatever name it has them."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto, TensorProto, helper

_VIEW = "_in_floats"
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True)
class MatchedValue:
    """A value of both models.

    Attributes:
        name: in the float model.
        small_name: in the quantized one, behind its own rounding.
        node: that gives it in the float model.
        op_type: of that node.
        is_result: whether it is an output of the model.
    """

    name: str
    small_name: str
    node: str
    op_type: str
    is_result: bool


def matched_values(model: ModelProto, small: ModelProto) -> list[MatchedValue]:
    """Return the floats that nodes of a float model give and a quantized model has.

    Values that the quantized model has in integers only get a DequantizeLinear in it.

    Args:
        model: the float model, with the types of its values.
        small: the quantized one; nodes may be added.
    """
    types = {
        each.name: each.type.tensor_type.elem_type for each in (*model.graph.value_info, *model.graph.output)
    }  # fmt: skip
    made = {name for node in small.graph.node for name in node.output}
    tensors = {each.name for each in small.graph.initializer}
    results = {each.name for each in model.graph.output}
    cut = _cut_values(model, made)
    found = []
    for node in model.graph.node:
        for name in node.output:
            if types.get(name) not in FLOATS or name in cut.values():
                continue
            other = _name_in(cut.get(name, name), made, tensors, small)
            if other is not None:
                found.append(MatchedValue(name, other, node.name, node.op_type, name in results))
    return found


def _cut_values(model: ModelProto, made: set[str]) -> dict[str, str]:
    """Return values of Relu and Clip that a quantized operator gives already, with what they are called there."""
    readers: dict[str, list[str]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    cuts = [node for node in model.graph.node if node.op_type in ("Relu", "Clip")]
    return {
        node.output[0]: node.input[0]
        for node in cuts
        if f"{node.input[0]}_quantized" in made
        and len(readers[node.input[0]]) == 1
        and not made & {node.output[0], f"{node.output[0]}_quantized"}
    }


def _name_in(name: str, made: set[str], tensors: set[str], small: ModelProto) -> str | None:
    is_result = any(each.name == name for each in small.graph.output)
    behind = f"{name}_DequantizeLinear_Output"
    if behind in made and not is_result:
        return behind
    if name in made:
        return name
    parts = [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"]
    if parts[0] in made and {parts[1], parts[2]} <= tensors:
        small.graph.node.append(helper.make_node("DequantizeLinear", parts, [name + _VIEW], name + _VIEW))
        return name + _VIEW
    return None
