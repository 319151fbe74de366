"""What a schema alone says of a node: whether its inputs are allowed, and which types its outputs have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ort_core.ir.attributes import AttributeKind
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.ops.schema import OpSchema, Parameter, ParameterOption
from ort_core.ops.type_text import parse_type, plain_text, without_shapes

_TENSOR_TEXT = {t: f"tensor({t.text})" for t in DataType}


# onnxruntime's tools write sparse constants into attributes declared as dense, and its loader takes them.
_EITHER_TENSOR = {AttributeKind.TENSOR, AttributeKind.SPARSE_TENSOR}
# Operators that onnxruntime refuses from the version on that deprecates them; GroupNormalization of opset 18 it takes.
_SUCCESSORS = {
    "Upsample": "Resize", "Scatter": "ScatterElements", "TreeEnsembleClassifier": "TreeEnsemble",
    "TreeEnsembleRegressor": "TreeEnsemble",
}  # fmt: skip


# Types that we take beyond onnxruntime's schema: its only kernel of PagedAttention is for CUDA, ours computes floats.
_FURTHER_TYPES = {("com.microsoft", "PagedAttention"): {"T": "tensor(float)", "T_CACHE": "tensor(float)"}}


class Signature:
    """A schema compiled for checking many nodes: allowed type texts and the variable of every parameter."""

    __slots__ = ("_allowed", "_fixed", "_input_limits", "_inputs", "_output_limits", "_outputs", "schema", "sound")

    def __init__(self, schema: OpSchema) -> None:
        self.schema = schema
        self._allowed = {
            name: frozenset(text.replace(" ", "") for text in texts) for name, texts in schema.type_constraints.items()
        }
        for name, text in _FURTHER_TYPES.get((schema.domain, schema.op_type), {}).items():
            self._allowed[name] |= {text}
        self.sound: dict[object, tuple[ValueType | None, ...]] = {}  # output types of what was found sound, by facts_of
        self._input_limits = (schema.min_inputs, schema.max_inputs)
        self._output_limits = (0, schema.max_outputs)
        self._inputs = schema.inputs
        self._outputs = schema.outputs
        self._fixed = {
            p.type_text: parse_type(p.type_text) for p in schema.outputs if p.type_text not in schema.type_constraints
        }
        for name, allowed in self._allowed.items():
            if len(allowed) == 1:
                self._fixed[name] = parse_type(next(iter(allowed)))

    def facts_of(self, node: Node, types: Sequence[ValueType | None]) -> object | None:
        """Return all that decides whether a node fits and which types its outputs have, but for shapes.

        ``None`` where an input is absent, of unknown type or no tensor: such nodes are rare.
        """
        dtypes = tuple([each.dtype if type(each) is TensorType else None for each in types])
        if None in dtypes:
            return None
        attributes = tuple([(name, each.kind) for name, each in node.attributes.items()]) if node.attributes else ()
        return (dtypes, len(node.outputs), attributes)

    def count_problem(self, node: Node) -> str | None:
        """Return what is wrong with the number of inputs or outputs, or ``None``."""
        schema = self.schema
        for what, values, (least, most) in (
            ("input", node.inputs, self._input_limits),
            ("output", node.outputs, self._output_limits),
        ):
            found = len(values)
            if found < least or (most is not None and found > most):
                limit = "inf" if most is None else most
                version = f"{schema.domain}::{schema.op_type}:{schema.since_version}"
                reason = f"has {what} size {found} not in range [min={least}, max={limit}]."
                return f"{node_text(node)} , Error Node({node.name}) with schema({version}) {reason}"
        return None

    def retirement(self, node: Node, opset: int) -> str | None:
        """Return that the operator is gone from this opset on, and which one took its place."""
        successor = _SUCCESSORS.get(self.schema.op_type) if self.schema.is_deprecated else None
        if successor is None:
            return None
        return (
            f"{node_text(node)} , Error Op registered for {node.op_type} is deprecated in domain_version of {opset}; "
            f"use {successor}, or import a version below {self.schema.since_version}"
        )

    def presence_problems(self, node: Node) -> Iterator[str]:
        """Yield which inputs and attributes are missing, and which attributes have another kind than declared."""
        for index, value in enumerate(node.inputs):
            parameter = _parameter(self._inputs, index) if value is None else None
            if (
                parameter is not None
                and parameter.option is not ParameterOption.OPTIONAL
                and (parameter.is_homogeneous or node.domain)
            ):
                yield f"{node_text(node)} : Input {index} ({parameter.name}) is required but has an empty name"
        declared = self.schema.attributes
        for name, attribute in node.attributes.items():
            kinds = {declared[name].kind, attribute.kind} if name in declared else set()
            if len(kinds) == 2 and kinds != _EITHER_TENSOR:
                yield (
                    f"{node_text(node)} : Mismatched attribute type in '{node.name} : {name}'. "
                    f"Expected: '{declared[name].kind.name}', actual: '{attribute.kind.name}'"
                )
        for name in node.attributes.keys() - declared.keys():
            yield f"{node_text(node)} : Unrecognized attribute: {name} for operator {node.op_type}"
        for name, known in declared.items():
            if known.is_required and name not in node.attributes:
                yield f"{node_text(node)} : Required attribute '{name}' is missing."

    def type_problems(self, node: Node, types: Sequence[ValueType | None]) -> Iterator[str]:
        """Yield what is wrong with the types of the inputs."""
        bound: dict[str, str] = {}
        for index, value_type in enumerate(types):
            if value_type is None:
                continue
            parameter = _parameter(self._inputs, index)
            if parameter is None:
                return
            text = _text_of(value_type)
            allowed = self._allowed.get(parameter.type_text)
            is_allowed = text in (allowed or (parameter.type_text.replace(" ", ""),))
            if not is_allowed and not (isinstance(value_type, TensorType) and value_type.dtype is DataType.UNDEFINED):
                yield (
                    f"Type Error: Type '{value_type}' of input parameter ({_value_name(node, index)}) of operator "
                    f"({node.op_type}) in node ({node.name}) is invalid."
                )
            elif allowed is not None and parameter.is_homogeneous:
                other = bound.setdefault(parameter.type_text, text)
                if other != text:
                    yield (
                        f"Type Error: Type parameter ({parameter.type_text}) of Optype ({node.op_type}) bound to "
                        f"different types ({other} and {text} in node ({node.name})."
                    )

    def output_types(self, types: Sequence[ValueType | None], count: int) -> list[ValueType | None]:
        """Return the types, without shapes, of ``count`` outputs as far as the type variables determine them."""
        bound: dict[str, ValueType] = {}
        for index, value_type in enumerate(types):
            if value_type is None:
                continue
            parameter = _parameter(self._inputs, index)
            if parameter is not None and parameter.is_homogeneous:
                bound.setdefault(parameter.type_text, value_type)
        found: list[ValueType | None] = []
        for index in range(count):
            parameter = _parameter(self._outputs, index)
            if parameter is None or not parameter.is_homogeneous:
                found.append(None)
                continue
            known = bound.get(parameter.type_text)
            if known is None:
                found.append(self._fixed.get(parameter.type_text))
            else:
                found.append(TensorType(known.dtype) if isinstance(known, TensorType) else without_shapes(known))
        return found


def node_text(node: Node) -> str:
    """Return a node as onnxruntime's messages write it."""
    inputs, outputs = (
        "".join('"",' if v is None else f'"{v.name}"{"" if v.type is None else f": {v.type}"},' for v in values)
        for values in (node.inputs, node.outputs)
    )
    return f'In Node, ("{node.name}", {node.op_type}, "{node.domain}", -1) : ({inputs}) -> ({outputs})'


def _parameter(parameters: tuple[Parameter, ...], index: int) -> Parameter | None:
    if index < len(parameters):
        return parameters[index]
    return parameters[-1] if parameters and parameters[-1].option.value == "variadic" else None


def _text_of(value_type: ValueType) -> str:
    return _TENSOR_TEXT[value_type.dtype] if isinstance(value_type, TensorType) else plain_text(value_type)


def _value_name(node: Node, index: int) -> str:
    value = node.input(index)
    return "" if value is None else value.name
