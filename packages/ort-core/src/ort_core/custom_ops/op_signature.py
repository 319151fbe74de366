"""The signature of an operator, read from the annotations of a plain function.

    def topmost(x: NDArray[T], k: NDArray[np.int64] | None = None, *rest: NDArray[T], axis: int = -1, ctx)
        -> tuple[NDArray[T], NDArray[np.int64]]

Positional parameters are inputs: ``| None`` or a default makes one optional, ``*rest`` is variadic. Keyword-only ones
are attributes; their defaults are the schema's. ``ctx`` and ``state`` are handed in by the engine. A result that is a
tuple has one output per element, ``tuple[A, ...]`` any number.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ort_core.annotated_names import own_annotations
from ort_core.custom_ops.type_annotations import AnnotatedType, read_type, without_aliases, without_none
from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.kernels.kernel import SubgraphRunner
from ort_core.ops.schema import AttributeSchema, Parameter, ParameterOption

HANDED_IN = ("ctx", "state")
_KINDS: dict[object, AttributeKind] = {
    int: AttributeKind.INT, float: AttributeKind.FLOAT, str: AttributeKind.STRING, bool: AttributeKind.INT,
    np.ndarray: AttributeKind.TENSOR, SubgraphRunner: AttributeKind.GRAPH,
}  # fmt: skip
_LIST_KINDS: dict[object, AttributeKind] = {
    int: AttributeKind.INTS, float: AttributeKind.FLOATS, str: AttributeKind.STRINGS, np.ndarray: AttributeKind.TENSORS
}  # fmt: skip
_LISTS = (list, tuple, collections.abc.Sequence)


@frozen
class OpSignature:
    """What a function's signature says of an operator.

    ``defaults`` are the Python values of attributes that have one; ``booleans`` names the attributes that the function
    takes as bool (ONNX has integers); ``handed_in`` are those of ``ctx`` and ``state`` that it takes.
    """

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, AttributeSchema]
    type_constraints: Mapping[str, frozenset[str]]
    defaults: Mapping[str, object]
    booleans: frozenset[str]
    handed_in: frozenset[str]


def read_signature(function: Callable[..., Any]) -> OpSignature:
    """Return the signature of an operator from a function's.

    Raises:
        InvalidArgument: an annotation has no meaning here; the message says which and what to write.
    """
    reader = _Reader(function)
    parameters = inspect.signature(function).parameters.values()
    inputs = [reader.input(p) for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    attributes = {p.name: reader.attribute(p) for p in parameters if reader.is_attribute(p)}
    outputs = reader.outputs()
    defaults = {p.name: p.default for p in parameters if p.name in attributes and p.default is not p.empty}
    return OpSignature(
        tuple(inputs), outputs, attributes, reader.constraints, defaults, frozenset(reader.booleans),
        frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in HANDED_IN),
    )  # fmt: skip


class _Reader:
    """Reads one function; collects the type variables and the names of boolean attributes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", repr(function))
        try:
            self._hints = _hints(inspect.unwrap(function))
        except NameError as error:
            raise InvalidArgument(
                f"the annotations of {self._name} cannot be read: {error}. Type variables and imports that they name "
                "must stand at the top of the module, not under TYPE_CHECKING."
            ) from error
        self.constraints: dict[str, frozenset[str]] = {}
        self.booleans: set[str] = set()

    def is_attribute(self, parameter: inspect.Parameter) -> bool:
        if parameter.kind is parameter.VAR_KEYWORD:
            raise InvalidArgument(f"{self._name} takes **{parameter.name}: name each attribute instead")
        return parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in HANDED_IN

    def input(self, parameter: inspect.Parameter) -> Parameter:
        where = f"input {parameter.name!r} of {self._name}"
        annotation, is_optional = without_none(self._hints.get(parameter.name))
        found = read_type(annotation, where)
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        is_optional = is_optional or parameter.default is not parameter.empty
        if parameter.default not in (parameter.empty, None):
            raise InvalidArgument(
                f"{where} has the default {parameter.default!r}; the default of an input can only be None. An "
                "attribute is a keyword-only parameter, behind a *."
            )
        option = ParameterOption.OPTIONAL if is_optional else ParameterOption.SINGLE
        return self._parameter(parameter.name, found, ParameterOption.VARIADIC if variadic else option)

    def attribute(self, parameter: inspect.Parameter) -> AttributeSchema:
        where = f"attribute {parameter.name!r} of {self._name}"
        annotation, _ = without_none(self._hints.get(parameter.name))
        if annotation is None and parameter.default not in (parameter.empty, None):
            annotation = type(parameter.default)
        kind = _attribute_kind(annotation)
        if kind is None:
            raise InvalidArgument(
                f"{where} is annotated with {annotation!r}; attributes are int, float, str, bool, np.ndarray, "
                "SubgraphRunner, or Sequence[...] of int, float, str or np.ndarray"
            )
        if annotation is bool:
            self.booleans.add(parameter.name)
        if parameter.default is parameter.empty:
            return AttributeSchema(parameter.name, kind, is_required=True)
        return AttributeSchema(parameter.name, kind, default=_default(parameter, kind))

    def outputs(self) -> tuple[Parameter, ...]:
        annotation = self._hints.get("return", np.ndarray)
        if annotation is type(None):
            raise InvalidArgument(f"{self._name} is annotated to return None; an operator has at least one output")
        arguments = typing.get_args(annotation)
        if typing.get_origin(annotation) is not tuple:
            return (self._output("y", annotation, ParameterOption.SINGLE),)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return (self._output("y", arguments[0], ParameterOption.VARIADIC),)
        return tuple(self._output(f"y{i}", each, ParameterOption.SINGLE) for i, each in enumerate(arguments))

    def _output(self, name: str, annotation: object, option: ParameterOption) -> Parameter:
        inner, is_optional = without_none(annotation)
        found = read_type(inner, f"the result {name!r} of {self._name}")
        return self._parameter(name, found, ParameterOption.OPTIONAL if is_optional else option)

    def _parameter(self, name: str, found: AnnotatedType, option: ParameterOption) -> Parameter:
        if found.variable is None and len(found.texts) == 1:
            return Parameter(name, next(iter(found.texts)), option, min_arity=0)
        variable = found.variable or f"T_{name}"
        known = self.constraints.setdefault(variable, found.texts)
        if known != found.texts:
            raise InvalidArgument(f"{self._name} has two type variables called {variable!r} with different types")
        return Parameter(name, variable, option, is_homogeneous=found.variable is not None, min_arity=0)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:  # Any: annotations are any objects
    """Return the annotations, read where they are texts; those of ``ctx`` and ``state`` say nothing here."""
    annotations = own_annotations(function)
    read = types.SimpleNamespace(__annotations__={n: a for n, a in annotations.items() if n not in HANDED_IN})
    hints = typing.get_type_hints(read, getattr(function, "__globals__", {}), include_extras=True)
    return {name: without_aliases(hint) for name, hint in hints.items()}


def _attribute_kind(annotation: object) -> AttributeKind | None:
    origin = typing.get_origin(annotation)
    if origin is np.ndarray:
        return AttributeKind.TENSOR
    if origin in _LISTS:
        item = without_aliases(typing.get_args(annotation)[0])
        return _LIST_KINDS.get(np.ndarray if typing.get_origin(item) is np.ndarray else item)
    return _KINDS.get(annotation)


def _default(parameter: inspect.Parameter, kind: AttributeKind) -> Attribute | None:
    value = parameter.default
    if value is None:
        return None
    if kind in _LIST_KINDS.values():
        return Attribute(parameter.name, kind, tuple(value))
    built = Attribute.of(parameter.name, int(value) if isinstance(value, bool) else value)
    return Attribute(parameter.name, kind, float(value) if kind is AttributeKind.FLOAT else built.value)
