"""KernelRegistry: which function computes an operator at an opset. An object that someone builds and passes."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType, ModuleType

from ort_core.forks import new_reentrant_lock
from ort_core.ir.rejection import Rejection
from ort_core.kernels.kernel import MARK, KernelFunction, KernelSpec
from ort_core.lifetimes import weakly_cached


class KernelRegistry:
    """A lookup from (domain, op_type, opset) to the kernel with the highest fitting since-version.

    Args:
        late: the name of the module with the kernels of an operator (domain, op_type), imported and collected when
            that operator is first asked for.
    """

    def __init__(self, late: Mapping[tuple[str, str], str] = MappingProxyType({})) -> None:
        self._specs: dict[tuple[str, str], list[KernelSpec]] = {}
        self._late = dict(late)
        self._lock = new_reentrant_lock()

    def add(self, spec: KernelSpec) -> None:
        """Add one kernel.

        Raises:
            ValueError: another kernel has the same operator and since-version, or the signature breaks the
                calling convention of ``kernels.kernel``.
        """
        _check_signature(spec)
        self._collect_late(spec.domain, spec.op_type)
        known = self._specs.setdefault((spec.domain, spec.op_type), [])
        for other in known:
            if other.since_version == spec.since_version:
                raise ValueError(
                    f"two kernels for {spec.domain or 'ai.onnx'}::{spec.op_type} since version {spec.since_version}: "
                    f"{describe(other.function)} and {describe(spec.function)}"
                )
        known.append(spec)
        known.sort(key=lambda item: -item.since_version)

    def collect(self, module: ModuleType) -> KernelRegistry:
        """Add every marked function defined in ``module`` and return self."""
        for spec in _marked(module):
            self.add(spec)
        return self

    def find(self, domain: str, op_type: str, opset: int) -> KernelSpec | Rejection:
        """Return the kernel for an operator at ``opset``, or the reason why there is none."""
        self._collect_late(domain, op_type)
        known = self._specs.get((domain, op_type), ())
        for spec in known:
            if spec.covers(opset):
                return spec
        name = f"{domain or 'ai.onnx'}::{op_type}"
        if not known:
            return Rejection(f"no kernel for {name}")
        ranges = ", ".join(f"{s.since_version}..{s.until_version or ''}" for s in reversed(known))
        return Rejection(f"no kernel for {name} at opset {opset}; kernels cover {ranges}")

    def operators(self) -> Iterator[tuple[str, str, tuple[KernelSpec, ...]]]:
        """Yield (domain, op_type, specs) for every operator, sorted by name."""
        for late in tuple(self._late):
            self._collect_late(*late)
        for (domain, op_type), specs in sorted(self._specs.items()):
            yield domain, op_type, tuple(specs)

    def names(self) -> frozenset[tuple[str, str]]:
        """Return (domain, op_type) of every operator; imports nothing."""
        with self._lock:
            return frozenset((*self._specs, *self._late))

    def first_version(self, domain: str, op_type: str) -> int:
        """Return the oldest version that a kernel of a known operator covers."""
        self._collect_late(domain, op_type)
        return min(spec.since_version for spec in self._specs[domain, op_type])

    def extended(self) -> KernelRegistry:
        """Return a new registry that starts with everything in this one."""
        with self._lock:
            copy = KernelRegistry(self._late)
            copy._specs = {key: list(specs) for key, specs in self._specs.items()}
        return copy

    @classmethod
    def of(cls, modules: Iterable[ModuleType]) -> KernelRegistry:
        """Build a registry from marked modules."""
        registry = cls()
        for module in modules:
            registry.collect(module)
        return registry

    def _collect_late(self, domain: str, op_type: str) -> None:
        """Collect the module that has the kernels of an operator, unless that is done."""
        if (domain, op_type) not in self._late:
            return
        with self._lock:
            name = self._late.get((domain, op_type))
            if name is None:
                return  # by another thread
            specs = _specs_of(importlib.import_module(name))
            promised = {key for key, other in self._late.items() if other == name}
            if promised != set(specs):
                wrong = ", ".join(f"{domain}:{op_type}" for domain, op_type in sorted(promised ^ set(specs)))
                raise ValueError(f"{name} and the table of its operators do not agree on {wrong}")
            self._specs.update({key: list(found) for key, found in specs.items()})
            self._late = {key: other for key, other in self._late.items() if other != name}


def _marked(module: ModuleType) -> Iterator[KernelSpec]:
    for function in vars(module).values():
        if getattr(function, "__module__", None) == module.__name__:
            yield from getattr(function, MARK, ())


@functools.cache
def _specs_of(module: ModuleType) -> Mapping[tuple[str, str], list[KernelSpec]]:
    """Return the kernels of a module by operator, checked. The lists are not to be changed."""
    return KernelRegistry.of([module])._specs


@weakly_cached
def signature(function: KernelFunction) -> inspect.Signature:
    """Return the (cached) signature of a kernel function."""
    return inspect.signature(function)


@weakly_cached
def attribute_names(function: KernelFunction) -> frozenset[str]:
    """Return the names of the attributes that a kernel takes (its keyword-only parameters but ``ctx``)."""
    parameters = signature(function).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "ctx")


def wants_context(function: KernelFunction) -> bool:
    """Return whether a kernel takes the ``KernelContext``."""
    return "ctx" in signature(function).parameters


def describe(function: KernelFunction) -> str:
    """Return ``module.function`` for messages."""
    return f"{function.__module__}.{function.__qualname__}"


def _check_signature(spec: KernelSpec) -> None:
    for parameter in signature(spec.function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ValueError(f"kernel {describe(spec.function)} takes **{parameter.name}: name each attribute instead")
