"""Operators: every operator that a session knows, ONNX's, onnxruntime's and those of libraries, ready to be looked up.

Values, not registries that change: ``extended`` returns new ones. A name and version belongs to one library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ort_core.custom_ops.definition import OpDefinition
from ort_core.custom_ops.library import OpLibrary
from ort_core.errors import Fail, InvalidGraph, did_you_mean
from ort_core.frozen import frozen
from ort_core.ir.model import Function, Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import walk
from ort_core.kernels.device_kernel import DeviceKernel
from ort_core.kernels.kernel import KernelSpec
from ort_core.kernels.registry import KernelRegistry
from ort_core.loops.rows import OpMeaning
from ort_core.onnx_io.schemas import ONNX_DOMAINS
from ort_core.ops.infer_rule import InferenceRules, InferRule
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.version_table import VersionTable

Key = tuple[str, str, int]
_OWN_DOMAINS = frozenset({*ONNX_DOMAINS, "com.microsoft"})  # libraries may add to these; their versions are not theirs


@frozen
class Operators:
    """What is known of operators. ``conflicts`` are those that two plugins claim, and so nobody has: key -> reason."""

    schemas: SchemaRegistry
    kernels: KernelRegistry
    rules: InferenceRules
    meanings: VersionTable[OpMeaning] = field(default_factory=VersionTable)
    functions: VersionTable[Function] = field(default_factory=VersionTable)
    device_kernels: Mapping[str, VersionTable[DeviceKernel]] = field(default_factory=dict)
    libraries: tuple[OpLibrary, ...] = ()
    conflicts: Mapping[Key, str] = field(default_factory=dict)

    def extended(self, libraries: Iterable[OpLibrary]) -> Operators:
        """Return operators that know those of ``libraries``, too. A library that is known already counts once.

        Raises:
            Fail: an operator is claimed by two libraries, or is one of the engine's own.
        """
        new = [library for library in dict.fromkeys(libraries) if library not in self.libraries]
        found = Operators(
            self.schemas.extended(), self.kernels.extended(), self.rules.extended(), self.meanings.extended(),
            self.functions.extended(), {device: table.extended() for device, table in self.device_kernels.items()},
            (*self.libraries, *new), self.conflicts,
        )  # fmt: skip
        owners = {each.key: library for library in self.libraries for each in library.operators}
        for library in new:
            for each in library.operators:
                if each.key in owners:
                    raise Fail(conflict_text(each, owners[each.key], library))
                self._check_own(each, library)
                owners[each.key] = library
                found._add(each)
        return found

    def adopt(self, model: Model) -> None:
        """Prepare an editable model for these operators: check versions, and bring in the functions that it calls.

        Raises:
            InvalidGraph: the model asks for a version of a library's domain, or an operator of it, that is not there.
            Fail: the model uses an operator that two plugins claim.
        """
        versions = {domain: version for domain, version in self._versions().items() if domain not in _OWN_DOMAINS}
        if not versions and not self.functions and not self.conflicts:
            return
        for domain, version in model.opset_imports.items():
            if version > versions.get(domain, version):
                raise InvalidGraph(self._too_new(domain, version, versions[domain]))
        waiting = [(node, model.opset_imports) for node in walk(model.graph)]
        waiting += [
            (n, {**model.opset_imports, **f.opset_imports}) for f in model.functions.values() for n in walk(f.graph)
        ]
        while waiting:
            node, imports = waiting.pop()
            if (node.domain, node.op_type, node.overload) in model.functions:
                continue
            opset = node.opset or imports.get(node.domain, 1)
            function = self.functions.find(node.domain, node.op_type, opset)
            if function is not None:
                model.functions[function.key] = function
                inner = {**imports, **function.opset_imports}
                waiting += [(each, inner) for each in walk(function.graph)]
            elif node.domain in versions:
                self._check_known(node, opset)

    def _versions(self) -> dict[str, int]:
        versions: dict[str, int] = {}
        for library in self.libraries:
            for domain, version in library.domain_versions.items():
                versions[domain] = max(version, versions.get(domain, 1))
        return versions

    def _owners(self, domain: str) -> str:
        return " and ".join(repr(library.name) for library in self.libraries if domain in library.domain_versions)

    def _too_new(self, domain: str, asked: int, known: int) -> str:
        owners = self._owners(domain)
        return (
            f"the model imports version {asked} of domain {domain!r}; library {owners} knows versions 1 to {known}. "
            f"Use a newer {owners}; where nothing changed in version {asked}, its author says so with "
            f"OpLibrary(..., domain_versions={{{domain!r}: {asked}}})."
        )

    def _check_known(self, node: Node, opset: int) -> None:
        versions = sorted(each.since_version for each in self._named(node.domain, node.op_type))
        if any(since <= opset for since in versions) or node.body is not None:
            return
        for key, reason in self.conflicts.items():
            if key[:2] == (node.domain, node.op_type):
                raise Fail(f"{node.describe()}: {reason}")
        owners = self._owners(node.domain)
        if versions:
            raise InvalidGraph(
                f"{node.describe()}: library {owners} has {node.op_type} since version {versions[0]} of domain "
                f"{node.domain!r}, the model imports version {opset}"
            )
        names = sorted({each.op_type for lib in self.libraries for each in lib.operators if each.domain == node.domain})
        raise InvalidGraph(
            f"{node.describe()}: library {owners} has no operator {node.op_type!r} in domain {node.domain!r}."
            f"{did_you_mean(node.op_type, names)} It has: {', '.join(names) or 'none'}."
        )

    def _named(self, domain: str, op_type: str) -> Sequence[OpDefinition]:
        every = (each for library in self.libraries for each in library.operators)
        return [each for each in every if (each.domain, each.op_type) == (domain, op_type)]

    def _check_own(self, each: OpDefinition, library: OpLibrary) -> None:
        if self._named(each.domain, each.op_type):
            return  # another version of a library's operator
        known = self.kernels.find(each.domain, each.op_type, each.since_version)
        if isinstance(known, KernelSpec):
            raise Fail(
                f"library {library.name!r} claims {each.qualified_name}, an operator of ONNX or onnxruntime that "
                "this engine has itself; give yours a domain of its own"
            )

    def _add(self, each: OpDefinition) -> None:
        names = (each.domain, each.op_type, each.since_version)
        if each.schema is not None:
            self.schemas.add(each.schema)
        if each.kernel is not None:
            names_of_kernel = (each.op_type, each.domain, each.since_version, None)
            self.kernels.add(KernelSpec(*names_of_kernel, each.kernel, keeps_numpy_errors=True))
        if each.infer is not None:
            self.rules.add(InferRule(each.op_type, each.domain, each.since_version, each.infer))
        if each.meaning is not None:
            self.meanings.add(*names, each.meaning)
        if each.function is not None:
            self.functions.add(*names, each.function)
        for device, kernel in each.device_kernels.items():
            self.device_kernels.setdefault(device, VersionTable()).add(*names, kernel)  # type: ignore[attr-defined]  # a new dict, made by extended


def conflict_text(each: OpDefinition, first: OpLibrary, second: OpLibrary) -> str:
    """Return what to say of an operator that two libraries claim."""
    return (
        f"operator {each.qualified_name} is claimed by two libraries, {first.name!r} and {second.name!r}; "
        "use one of them, or give the operator of one another name, version or domain"
    )


def split_conflicts(libraries: Sequence[OpLibrary]) -> tuple[list[OpLibrary], dict[Key, str]]:
    """Return plugins' libraries without the operators that two of them claim, and the reason for each of those.

    What plugins bring may not make each other fail before somebody uses it: the reason is an error in a model's way.
    """
    claims: dict[Key, list[OpLibrary]] = {}
    for library in libraries:
        for each in library.operators:
            claims.setdefault(each.key, []).append(library)
    definitions = {each.key: each for library in libraries for each in library.operators}
    conflicts = {key: conflict_text(definitions[key], *owners[:2]) for key, owners in claims.items() if len(owners) > 1}
    kept = [
        OpLibrary(
            library.name,
            [each for each in library.operators if each.key not in conflicts],
            domain_versions=library.domain_versions,
        )
        if any(each.key in conflicts for each in library.operators)
        else library
        for library in libraries
    ]
    return kept, conflicts
