"""OpLibrary: operators under one name, ready to be given to a session or to be offered by a package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

from ort_core.custom_ops.custom_op import CustomOp
from ort_core.custom_ops.definition import OpDefinition
from ort_core.custom_ops.function_op import function_definition, is_function
from ort_core.custom_ops.reference_op import is_reference_op, reference_definition
from ort_core.errors import InvalidArgument, InvalidType


class OpLibrary:
    """Operators with a name. Immutable: it holds what the operators were when it was made.

    Args:
        name: what messages call it: of a package, its distribution's name.
        operators: operators made by ``custom_op`` or ``elementwise_op``, ONNX functions (``FunctionProto``, its text,
            or what has ``to_function_proto``), subclasses of ``onnx.reference.OpRun``, or ``OpDefinition``.
        domain_versions: the newest version of a domain that this library knows, where no operator of it changed then.

    Raises:
        InvalidArgument: two operators have the same name and version.
        InvalidType: something is not an operator.
    """

    def __init__(
        self, name: str, operators: Iterable[object], *, domain_versions: Mapping[str, int] | None = None
    ) -> None:
        self._name = name
        self._given = tuple(operators)
        self._operators = tuple(_definition(operator, name) for operator in self._given)
        self._versions = dict(domain_versions or {})
        seen: dict[tuple[str, str, int], OpDefinition] = {}
        for each in self._operators:
            other = seen.setdefault(each.key, each)
            if other is not each:
                raise InvalidArgument(
                    f"library {name!r} has {each.qualified_name} twice: {other.origin} and {each.origin}"
                )
            self._versions[each.domain] = max(each.since_version, self._versions.get(each.domain, 1))

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._name

    @property
    def operators(self) -> tuple[OpDefinition, ...]:
        """The operators, each version of one by itself."""
        return self._operators

    @property
    def domain_versions(self) -> Mapping[str, int]:
        """The newest version of each domain that the library knows."""
        return dict(self._versions)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self._name, self._given, self._versions)

    def __repr__(self) -> str:
        listed = ", ".join(each.qualified_name for each in self._operators)
        return f"OpLibrary({self._name!r}: {listed or 'empty'})"


def _rebuilt(name: str, operators: tuple[object, ...], versions: dict[str, int]) -> OpLibrary:
    return OpLibrary(name, operators, domain_versions=versions)


def library_of_module(module: ModuleType, name: str | None = None) -> OpLibrary:
    """Return the operators that a module defines, as one library.

    Those are its ``OpLibrary`` objects if it has any, else its operators made by ``custom_op`` or ``elementwise_op``
    and its subclasses of ``OpRun``; what it imported from elsewhere does not count.

    Raises:
        InvalidArgument: it defines none.
    """
    name = name or module.__name__
    values = list({id(value): value for value in vars(module).values()}.values())
    libraries = [value for value in values if isinstance(value, OpLibrary)]
    if len(libraries) == 1:
        return libraries[0]
    if libraries:
        versions: dict[str, int] = {}
        for library in libraries:
            for domain, version in library.domain_versions.items():
                versions[domain] = max(version, versions.get(domain, 1))
        return OpLibrary(name, [op for each in libraries for op in each.operators], domain_versions=versions)
    own = [value for value in values if getattr(value, "__module__", None) == module.__name__]
    operators = [value for value in own if isinstance(value, CustomOp) or is_reference_op(value)]
    if not operators:
        raise InvalidArgument(
            f"{name} defines no operators: no OpLibrary, nothing decorated with custom_op or elementwise_op, no "
            "subclass of onnx.reference.OpRun"
        )
    return OpLibrary(name, operators)


def _definition(operator: object, library: str) -> OpDefinition:
    if isinstance(operator, OpDefinition):
        return operator
    if isinstance(operator, CustomOp):
        return operator.definition()
    if is_reference_op(operator):
        return reference_definition(operator)
    if is_function(operator):
        return function_definition(operator)
    raise InvalidType(
        f"library {library!r} is given a {type(operator).__name__}, which is not an operator: decorate a function with "
        "custom_op or elementwise_op, or give an ONNX function or a subclass of onnx.reference.OpRun"
    )
