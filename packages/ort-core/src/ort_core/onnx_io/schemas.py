"""Schemas of ONNX's own domains, read from ``onnx.defs`` into plain ``OpSchema`` facts when first asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import onnx
import onnx.defs

from ort_core.errors import InvalidGraph
from ort_core.ir.attributes import AttributeKind
from ort_core.ir.model import Function
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import ValueType
from ort_core.onnx_io.graph_loader import GraphLoader
from ort_core.onnx_io.save import node_to_proto
from ort_core.onnx_io.type_proto import save_type
from ort_core.ops.schema import AttributeSchema, BodyBuilder, OpSchema, Parameter, ParameterOption

MAX_OPSET = 28
ONNX_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")
_OPTIONS = {
    onnx.defs.OpSchema.FormalParameterOption.Single: ParameterOption.SINGLE,
    onnx.defs.OpSchema.FormalParameterOption.Optional: ParameterOption.OPTIONAL,
    onnx.defs.OpSchema.FormalParameterOption.Variadic: ParameterOption.VARIADIC,
}


def find_onnx_schema(domain: str, op_type: str, opset: int) -> OpSchema | None:
    """Return the newest schema of an operator not above ``opset``, or ``None``; a ``SchemaSource``.

    ``Constant`` has its newest schema at each opset: a form of a later version has but one meaning, and onnxruntime
    takes each form everywhere.
    """
    if domain not in ONNX_DOMAINS or not onnx.defs.has(op_type, domain):
        return None
    if op_type == "Constant" and not domain:
        opset = max(opset, MAX_OPSET)
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return _converted(op_type, domain, schema.since_version)


@functools.cache
def _converted(op_type: str, domain: str, since_version: int) -> OpSchema:
    return convert_schema(onnx.defs.get_schema(op_type, since_version, domain))


def convert_schema(schema: onnx.defs.OpSchema) -> OpSchema:
    """Return a schema of the ``onnx`` package as plain facts."""
    return OpSchema(
        schema.name,
        "" if schema.domain == "ai.onnx" else schema.domain,
        schema.since_version,
        tuple(map(_parameter, schema.inputs)),
        tuple(map(_parameter, schema.outputs)),
        {name: _attribute(a) for name, a in schema.attributes.items()},
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints},
        schema.deprecated,
        schema.node_determinism != onnx.defs.OpSchema.NodeDeterminism.NonDeterministic,
        _body_builder(schema) if schema.has_function or schema.has_context_dependent_function else None,
        schema.doc or "",
    )


def _parameter(parameter: onnx.defs.OpSchema.FormalParameter) -> Parameter:
    return Parameter(
        parameter.name, parameter.type_str, _OPTIONS[parameter.option], parameter.is_homogeneous, parameter.min_arity
    )


def _attribute(attribute: onnx.defs.OpSchema.Attribute) -> AttributeSchema:
    default = None
    proto = attribute.default_value
    if proto.name:
        default = GraphLoader(None)._attribute(proto, {}, 0)
    return AttributeSchema(attribute.name, AttributeKind(attribute.type.value), attribute.required, default)


def _body_builder(schema: onnx.defs.OpSchema) -> BodyBuilder:
    def build(
        node: Node, input_types: Sequence[ValueType | None], opset: int, imports: Mapping[str, int]
    ) -> Function | Rejection:
        proto = _function_proto(schema, node, input_types, opset)
        if isinstance(proto, Rejection):
            return proto
        _drop_absent_outputs(proto, node)
        try:
            return GraphLoader(None).function(proto)
        except InvalidGraph as error:
            return Rejection(f"the function body of {node.qualified_name} is not usable: {error}", node)

    return build


def _drop_absent_outputs(proto: onnx.FunctionProto, node: Node) -> None:
    """Let a body return what the node does: for absent outputs the specification makes none.

    Absent ones at the end are dropped. One before a present one returns the first output once more, which nobody reads.
    """
    made = {name for each in proto.node for name in each.output} | set(proto.input)
    while len(proto.output) > len(node.outputs) and proto.output[-1] not in made:
        proto.output.pop()
    for index, value in enumerate(node.outputs[: len(proto.output)]):
        if value is None and proto.output[index] not in made:
            proto.output[index] = proto.output[0]


_FIRST_TYPE_IS_READ = frozenset({"SequenceMap"})
"""Operators of which onnx's builder of a body reads the first input's type unseen: an unknown one ends the process."""


def _function_proto(
    schema: onnx.defs.OpSchema, node: Node, input_types: Sequence[ValueType | None], opset: int
) -> onnx.FunctionProto | Rejection:
    proto = onnx.FunctionProto()
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        built = schema.get_function_with_opset_version(max(versions)) if versions else None
        proto.ParseFromString(schema.function_body.SerializeToString() if built is None else built)
        return proto
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return Rejection(f"{node.qualified_name} has no function body at opset {opset}", node)
    types = [b"" if t is None else save_type(t).SerializeToString() for t in input_types]
    if schema.name in _FIRST_TYPE_IS_READ and not any(types[:1]):
        return Rejection(f"the type of the first input of {node.qualified_name} is not known", node)
    content = schema.get_context_dependent_function_with_opset_version(
        max(versions), node_to_proto(node).SerializeToString(), types
    )
    if not content:
        return Rejection(f"{node.qualified_name} has no function body for these attributes and input types", node)
    proto.ParseFromString(content)
    return proto


def onnx_version() -> str:
    """Return the version of the ``onnx`` package, which decides the operators' schemas and function bodies."""
    return onnx.__version__
