"""Types of the ``onnx`` package that other programs expect to meet: its backend interface and its schema list."""

from __future__ import annotations

from collections.abc import Iterable

import onnx.defs
from onnx.backend.base import Backend, BackendRep

from ort_core.ops.contrib_schemas import contrib_schemas
from ort_core.ops.schema import AttributeSchema, OpSchema, Parameter, ParameterOption

__all__ = ["Backend", "BackendRep", "all_operator_schemas"]

_OPTIONS = {
    ParameterOption.SINGLE: onnx.defs.OpSchema.FormalParameterOption.Single,
    ParameterOption.OPTIONAL: onnx.defs.OpSchema.FormalParameterOption.Optional,
    ParameterOption.VARIADIC: onnx.defs.OpSchema.FormalParameterOption.Variadic,
}


def all_operator_schemas() -> list[onnx.defs.OpSchema]:
    """Return the schema of every version of every operator: onnx's own, then those that onnxruntime adds.

    The schemas of an operator that was taken back are left out: onnx offers no way to say so of one.
    """
    own = (_onnx_schema(schema) for schema in contrib_schemas() if not schema.is_deprecated)
    return [*onnx.defs.get_all_schemas_with_history(), *own]


def _onnx_schema(schema: OpSchema) -> onnx.defs.OpSchema:
    return onnx.defs.OpSchema(
        schema.op_type,
        schema.domain,
        schema.since_version,
        schema.doc,
        inputs=_parameters(schema.inputs),
        outputs=_parameters(schema.outputs),
        type_constraints=[(name, sorted(types), "") for name, types in schema.type_constraints.items()],
        attributes=[_attribute(name, attribute) for name, attribute in schema.attributes.items()],
    )


def _parameters(parameters: Iterable[Parameter]) -> list[onnx.defs.OpSchema.FormalParameter]:
    return [
        onnx.defs.OpSchema.FormalParameter(
            each.name, each.type_text, "", param_option=_OPTIONS[each.option], is_homogeneous=each.is_homogeneous
        )
        for each in parameters
    ]


def _attribute(name: str, attribute: AttributeSchema) -> onnx.defs.OpSchema.Attribute:
    kind = getattr(onnx.defs.OpSchema.AttrType, attribute.kind.name)
    if attribute.default is None:
        return onnx.defs.OpSchema.Attribute(name, kind, "", required=attribute.is_required)
    return onnx.defs.OpSchema.Attribute(name, onnx.helper.make_attribute(name, attribute.default.value), "")
