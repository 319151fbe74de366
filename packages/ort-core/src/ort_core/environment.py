"""Environment: what outlives a session. Plugins, operator registries, shared weights, and which providers can run here.

``default_environment()`` is the one global; a forked child gets a new one. Tests and servers may build their own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from ort_core.errors import NotFound, OrtError, did_you_mean
from ort_core.forks import new_lock, new_reentrant_lock, no_fork
from ort_core.providers.provider import Available, ExecutionProvider, Unavailable
from ort_core.providers.remembered_plugins import RememberedPlugins, RememberedProvider, find_remembered, remember
from ort_core.providers.timed_check import TimedCheck
from ort_core.tensors.device import DeviceApi, DeviceDirectory
from ort_core.tensors.weight_store import WeightStore

if TYPE_CHECKING:
    from ort_core.custom_ops.library import OpLibrary
    from ort_core.custom_ops.operators import Operators
    from ort_core.kernels.registry import KernelRegistry
    from ort_core.ops.infer_rule import InferenceRules
    from ort_core.ops.registry import SchemaRegistry
    from ort_core.passes.base import Pass
    from ort_core.providers.discovery import PluginRegistry, PluginSource

log = logging.getLogger(__name__)
T = TypeVar("T")


class _Shared(Generic[T]):
    """A property that is made once, under the lock of its environment.

    ``functools.cached_property`` has a lock of its own for all instances (Python 3.11), which two threads would take in
    another order than the environment's, or none (3.12), so that each of them would make one.
    """

    def __init__(self, make: Callable[[Environment], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> _Shared[T]: ...

    @overload
    def __get__(self, instance: Environment, owner: type) -> T: ...

    def __get__(self, instance: Environment | None, owner: type) -> _Shared[T] | T:
        if instance is None:
            return self
        with no_fork(), instance._lock:
            if self._name not in instance.__dict__:
                instance.__dict__[self._name] = self._make(instance)  # found there from now on, without this
            made: T = instance.__dict__[self._name]
            return made


class Environment:
    """Everything that sessions share. Thread-safe; discovers plugins at the first question about them.

    Args:
        find_sources: gives the plugins; those of installed distributions without one.

    ``seed`` and ``intra_op_num_threads`` (0 chooses) are for sessions that state none; they may be set at any time.
    ``clock`` gives the nanoseconds that placement is measured in.
    """

    def __init__(self, find_sources: Callable[[], Sequence[PluginSource]] | None = None) -> None:
        self._find_sources = find_sources
        self._lock = new_reentrant_lock()
        self._checks: dict[str, Available | Unavailable | TimedCheck] = {}
        self.weights = WeightStore()
        self.process_id = os.getpid()
        self.seed: int | None = None
        self.intra_op_num_threads = 0
        self.clock: Callable[[], int] = time.perf_counter_ns

    @_Shared
    def plugins(self) -> PluginRegistry:
        """All plugins, discovered once."""
        from ort_core.providers.discovery import discover, entry_point_sources  # imports pluggy, and much for metadata

        if self._find_sources is not None:
            return discover(self._find_sources())
        found = discover(entry_point_sources())
        remember(found)
        return found

    @_Shared
    def _remembered(self) -> RememberedPlugins | None:
        return find_remembered() if self._find_sources is None else None

    @property
    def _foreseen(self) -> RememberedPlugins | None:
        """What an earlier process discovered, as long as this one has not."""
        return None if "plugins" in self.__dict__ else self._remembered

    @_Shared
    def operators(self) -> Operators:
        """The operators of ONNX, onnxruntime's own, and those of plugins."""
        return self._operators_with(self._plugin_libraries())

    def without_operators(self, keys: Collection[tuple[str, str, int]]) -> Environment:
        """Return this environment as if no plugin brought operators of these domains, names and versions."""
        from ort_core.custom_ops.library import OpLibrary  # tests of operators ask for this, no session does

        kept = [
            OpLibrary(each.name, [o for o in each.operators if o.key not in keys], domain_versions=each.domain_versions)
            for each in self._plugin_libraries()
        ]
        return self._view(self._operators_with(kept))

    def _operators_with(self, offered: Sequence[OpLibrary]) -> Operators:
        from dataclasses import replace

        from ort_core.custom_ops.operators import Operators, split_conflicts  # a session out of the cache has no use
        from ort_core.kernels.reference_registry import reference_kernels  # for any of these
        from ort_core.onnx_io.schemas import find_onnx_schema
        from ort_core.ops.contrib_schemas import find_contrib_schema
        from ort_core.ops.infer.all_rules import build_rules
        from ort_core.ops.registry import SchemaRegistry

        schemas = SchemaRegistry(find_onnx_schema, find_contrib_schema)
        own = Operators(schemas, reference_kernels(), build_rules())
        libraries, conflicts = split_conflicts(offered)
        usable = replace(own, conflicts=conflicts)
        for library in libraries:
            try:
                usable = usable.extended([library])
            except OrtError as error:
                log.warning("the operators of %s cannot be used: %s", library.name, error)
        return usable

    @property
    def schemas(self) -> SchemaRegistry:
        """The signatures of all operators."""
        return self.operators.schemas

    @property
    def kernels(self) -> KernelRegistry:
        """The reference kernels and those of plugins' operators."""
        return self.operators.kernels

    @property
    def inference_rules(self) -> InferenceRules:
        """What operators do to types and shapes."""
        return self.operators.rules

    def with_libraries(self, libraries: Sequence[OpLibrary]) -> Environment:
        """Return this environment with further operators; all else is shared with it.

        Raises:
            Fail: an operator is claimed by two libraries, or is one of the engine's own.
        """
        if not libraries:
            return self
        return self._view(self.operators.extended(libraries))

    def _view(self, operators: Operators) -> Environment:
        from copy import copy  # few have libraries

        view = copy(self)
        view.__dict__.update(operators=operators, plugins=self.plugins, devices=self.devices, passes=self.passes)
        return view

    def _plugin_libraries(self) -> list[OpLibrary]:
        from ort_core.custom_ops.sources import offered_libraries  # as in operators

        found: list[OpLibrary] = []
        distributions = {plugin.name: plugin.distribution for plugin in self.plugins.plugins}
        for name, offered in self.plugins.call("ort_custom_ops"):
            try:
                found += offered_libraries(distributions[name], offered)
            except (OrtError, TypeError) as error:  # the border to plugins: a broken one must not break the others
                log.warning("the operators of plugin %s cannot be used: %s", name, error)
        return found

    @_Shared
    def devices(self) -> DeviceDirectory:
        """The devices that plugins offer, and the CPU."""
        factories: dict[str, Callable[[int], DeviceApi]] = {}
        for _, offered in self.plugins.call("ort_devices"):
            factories.update(offered)  # type: ignore[call-overload]  # the hook's result is as hookspecs says
        return DeviceDirectory(factories)

    @_Shared
    def passes(self) -> tuple[Pass, ...]:
        """The passes that plugins bring."""
        return tuple(p for _, passes in self.plugins.call("ort_passes") for p in passes)  # type: ignore[attr-defined]  # as hookspecs says

    @property
    def has_own_passes_or_operators(self) -> bool:
        """Whether plugins or libraries bring passes or operators."""
        if self._foreseen is not None and "operators" not in self.__dict__:
            return self._foreseen.has_own_passes_or_operators
        if "operators" in self.__dict__:
            return bool(self.passes or self.operators.libraries)
        return bool(self.passes or self.plugins.call("ort_custom_ops"))  # not asked what they are: that takes longer

    def provider_classes(self) -> dict[str, type[ExecutionProvider]]:
        """Return all usable provider classes by name, highest priority first."""
        classes = self.plugins.providers.values()
        return {cls.name: cls for cls in sorted(classes, key=lambda cls: (-cls.priority, cls.name))}

    def check(self, name: str) -> Available | Unavailable:
        """Return whether a provider can run here; the answer of each is kept."""
        with no_fork(), self._lock:
            found = self._checks.get(name)
            if found is None:
                found = self._checks[name] = self._check(name)
        if not isinstance(found, TimedCheck):
            return found
        answer = found.answer()  # without the lock: a check may ask the environment, too
        with self._lock:
            self._checks[name] = answer
        return answer

    def available_providers(self) -> list[str]:
        """Return the names of all providers that can run here, highest priority first.

        A provider behind the last resort, to which nothing is ever left, is not among them: the oracle.
        """
        return [name for name, each in self._described().items() if each.priority >= 0 and self.check(name)]

    def default_providers(self) -> list[str]:
        """Return the names of the providers that sessions use which name none, highest priority first."""
        return [name for name, each in self._described().items() if each.is_listed and self.check(name)]

    def _described(self) -> Mapping[str, RememberedProvider | type[ExecutionProvider]]:
        return self.provider_classes() if self._foreseen is None else self._foreseen.providers

    def get_provider(self, name: str) -> type[ExecutionProvider]:
        """Return a provider class.

        Raises:
            NotFound: no installed plugin has a provider of that name; the message says what is installed.
        """
        found = self._find_class(name)
        if found is not None:
            return found
        classes = self.provider_classes()
        known = list(classes)
        raise NotFound(
            f"Unknown Provider Type: {name}.{did_you_mean(name, known)} Installed providers: {', '.join(known)}. "
            f"Providers come from packages: {PACKAGES.get(name, 'pip install ort-ep-…')}.{self._unusable_plugins()}"
        )

    def _unusable_plugins(self) -> str:
        """Return the sentence that names plugins that do not load, and why: one may have the provider asked for."""
        reasons = "; ".join(str(reason) for reason in self.plugins.unusable.values())
        return f" Plugins that cannot be used: {reasons}." if reasons else ""

    def _find_class(self, name: str) -> type[ExecutionProvider] | None:
        remembered = self._foreseen.providers.get(name) if self._foreseen is not None else None
        found = remembered.load() if remembered is not None else None
        return self.plugins.providers.get(name) if found is None else found

    def _check(self, name: str) -> Available | Unavailable | TimedCheck:
        cls = self._find_class(name)
        if cls is not None:
            return TimedCheck(cls)
        if name in self.plugins.unusable:
            return self.plugins.unusable[name]
        remedy = PACKAGES.get(name, "")
        return Unavailable(f"no installed package provides {name}", remedy)


PACKAGES = {
    "CUDAExecutionProvider": "pip install ort-ep-cuda",
    "TensorrtExecutionProvider": "pip install ort-ep-tensorrt",
    "NvTensorRTRTXExecutionProvider": "pip install ort-ep-tensorrt",
    "OpenVINOExecutionProvider": "pip install ort-ep-openvino",
    "CoreMLExecutionProvider": "pip install ort-ep-coreml",
    "DmlExecutionProvider": "pip install ort-ep-directml",
}
"""Which package brings a provider: advice in messages only, nothing depends on it."""

_default: Environment | None = None
_default_lock = new_lock()


def default_environment() -> Environment:
    """Return the environment of this process; built at the first call, and anew in a forked child."""
    global _default  # noqa: PLW0603 - the one allowed global
    with _default_lock:
        if _default is None or _default.process_id != os.getpid():
            _default = Environment()
        return _default
