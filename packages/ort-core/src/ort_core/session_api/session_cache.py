"""The session cache: a whole session in the artefact cache, from what the API shows to what runs.

A load that finds its entry reads neither the model nor its weights: the entry is found by the identity of the model's
file and by everything else that decided the load, it lists the other files that the model refers to with their
identities, and holds what the provider remembers of the one partition. Anything that the entry cannot answer makes the
session prepare its model the ordinary way.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import struct
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ort_core import __version__
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.cache.versions import package_facts
from ort_core.errors import EPFail, OrtError
from ort_core.forks import new_reentrant_lock, no_fork
from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.rejection import Rejection
from ort_core.ir.type_data import type_from_data, type_to_data
from ort_core.ir.values import Value
from ort_core.passes.take_defaults import ShownValues
from ort_core.providers.provider import Unavailable, make_provider
from ort_core.runtime.plan import ExecutionPlan, PartitionStep, PlannedStep, places_of
from ort_core.session_api.file_identity import Identity, are_settled, identity_of
from ort_core.session_api.model_source import is_of_file
from ort_core.session_api.node_arg import ModelMetadata
from ort_core.stages.settings import PrepareSettings

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.options import SessionOptions
    from ort_core.providers.compiled import CompiledPartition
    from ort_core.providers.provider import ExecutionProvider
    from ort_core.session_api.provider_request import Request
    from ort_core.stages import PreparedModel

log = logging.getLogger(__name__)

_KIND = "session"
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
_CACHE_SHARE = 4  # an entry may take this part of the cache: its weights are a copy of the model's
PlainData = Any  # Any: nested lists and dicts, as JSON has them


@frozen
class RecalledSession:
    """What an entry gives: the plan, and what the API shows. ``prepare`` prepares the model the ordinary way, once."""

    plan: ExecutionPlan
    shown: ShownValues
    metadata: ModelMetadata
    providers: tuple[str, ...]
    provider_options: Mapping[str, Mapping[str, str]]
    prepare: Callable[[], PreparedModel]


class SessionCacheEntry:
    """The place of one session in the cache: the file of its model, its provider, and what else decides a load."""

    def __init__(self, key: CacheKey, model: Identity, provider: ExecutionProvider, settings: PrepareSettings) -> None:
        self._key, self._model = key, model
        self._provider, self._settings = provider, settings
        self._cache = ArtefactCache()

    def recall(self, prepare: Callable[[], PreparedModel]) -> RecalledSession | None:
        """Return the session, or ``None`` where nothing fits; ``prepare`` loads and prepares the model."""
        content = self._cache.map(self._key)
        if content is None:
            return None
        try:
            return self._decoded(content, prepare)
        except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
            log.warning("a session in the cache cannot be loaded and is prepared again: %s", error)
            return None

    def store(
        self, prepared: PreparedModel, shown: ShownValues, metadata: ModelMetadata, files: list[Identity] | Rejection
    ) -> bool:
        """Put a prepared session into the cache if all of it can be told; returns whether it was.

        Args:
            prepared: the session's model, ready to run.
            shown: what callers see of it.
            metadata: what the model says of itself.
            files: those that the model refers to, as they were before its weights were read, or why they are not known.
        """
        kept = files if isinstance(files, Rejection) else self._encoded(prepared, shown, metadata, files)
        if isinstance(kept, Rejection):
            log.debug("the session is not stored in the cache: %s", kept)
            return False
        return self._cache.put(self._key, *kept)

    def _encoded(
        self, prepared: PreparedModel, shown: ShownValues, metadata: ModelMetadata, files: list[Identity]
    ) -> list[bytes | memoryview] | Rejection:
        files = [self._model, *files] if is_of_file(self._model) else files
        if any(identity_of(each[0]) != each for each in files) or not are_settled(files):
            return Rejection("a file changed a moment ago")
        plan, report = prepared.plan, prepared.report
        planned = plan.steps[0] if len(plan.steps) == 1 else None
        if planned is None or not isinstance(planned.step, PartitionStep) or report.fallbacks or report.unavailable:
            return Rejection("the plan is not one partition on the provider that was asked for")
        inputs = {plan.input_slots[value.name]: value.name for value in plan.graph.inputs}
        if any(slot not in inputs for slot in planned.reads) or any(v.constant is not None for v in plan.graph.inputs):
            return Rejection("the partition reads constants")
        outputs = [plan.output_slots[value.name] for value in plan.graph.outputs]
        if not set(outputs).issubset(planned.writes):
            return Rejection("an output is not computed")
        content = planned.step.compiled.remember()
        if isinstance(content, Rejection):
            return content
        if sum(map(len, content)) > self._cache.max_nbytes // _CACHE_SHARE:
            return Rejection("its weights would take too much of the cache")
        head = json.dumps(
            {
                "files": files,
                "shown": [_values_to_data(each) for each in (shown.required, shown.overridable, shown.outputs)],
                "metadata": metadata.as_dict(),
                "providers": prepared.providers,
                "provider_options": {name: dict(options) for name, options in prepared.provider_options.items()},
                "graph": [_values_to_data(plan.graph.inputs), _values_to_data(plan.graph.outputs)],
                "partition": planned.step.name,
                "reads": [inputs[slot] for slot in planned.reads],
                "writes": places_of(planned.writes, outputs),
                "write_count": len(planned.writes),
            }
        ).encode()
        start = _LENGTH.pack(len(head)) + head
        return [start + bytes(-len(start) % _ALIGNMENT), *content]

    def _decoded(self, content: memoryview, prepare: Callable[[], PreparedModel]) -> RecalledSession | None:
        (length,) = _LENGTH.unpack_from(content)
        head = json.loads(bytes(content[_LENGTH.size : _LENGTH.size + length]))
        if any(identity_of(each[0]) != tuple(each) for each in head["files"]):
            log.debug("a file that the model refers to has changed")
            return None
        once = _Once(prepare)
        compiled = self._provider.recall(
            content[-(-(_LENGTH.size + length) // _ALIGNMENT) * _ALIGNMENT :],
            self._settings.threads,
            lambda: _only_partition(once(), head),
        )
        if isinstance(compiled, Rejection):
            log.debug("%s does not recall the partition: %s", self._provider.name, compiled)
            return None
        shown = [tuple(_values_from_data(each)) for each in head["shown"]]
        return RecalledSession(
            _plan(head, self._provider.name, compiled), ShownValues(*shown), ModelMetadata(**head["metadata"]),
            tuple(head["providers"]), head["provider_options"], once,
        )  # fmt: skip


def find_cache_entry(
    model: Identity,
    options: SessionOptions,
    environment: Environment,
    request: Request,
    disabled_passes: frozenset[str],
) -> SessionCacheEntry | Rejection:
    """Return the place of a session in the cache, by its model's identity, or why it has none."""
    if len(request) != 1:
        return Rejection("several providers were asked for")
    if options.holds_objects:
        return Rejection("the options hold objects, which no key can tell")
    if environment.has_own_passes_or_operators:
        return Rejection("plugins bring passes or operators, which have no versions")
    settings = PrepareSettings.of(options, environment, disabled_passes)
    if not settings.use_cache or settings.placement != "priority":
        return Rejection("the cache is switched off, or placement is measured")
    name, provider_options = request[0]
    if not environment.check(name):
        return Rejection("the provider is not available")
    try:
        provider = make_provider(environment.get_provider(name), provider_options)
    except OrtError as error:  # the ordinary way raises it, with all that it says
        return Rejection(str(error))
    if isinstance(provider, Unavailable):
        return Rejection(str(provider))
    facts = (
        ("model", json.dumps(model)),
        ("options", repr(options)),
        ("settings", repr(settings.facts)),
        ("provider", f"{name} {provider.cache_key()}"),
        ("python", sys.version),
        ("ort-core", __version__),
        *package_facts(),
        *_installed(),
    )
    return SessionCacheEntry(CacheKey(_KIND, b"", (), facts), model, provider, settings)


class _Once:
    """Calls a function once, for whoever asks first."""

    def __init__(self, prepare: Callable[[], PreparedModel]) -> None:
        self._prepare = prepare
        self._prepared: PreparedModel | None = None
        self._lock = new_reentrant_lock()

    def __call__(self) -> PreparedModel:
        with no_fork(), self._lock:
            if self._prepared is None:
                self._prepared = self._prepare()
            return self._prepared


def _only_partition(prepared: PreparedModel, head: Mapping[str, PlainData]) -> CompiledPartition:
    planned = prepared.plan.steps[0] if len(prepared.plan.steps) == 1 else None
    if planned is not None and isinstance(planned.step, PartitionStep):
        names = {slot: name for name, slot in prepared.plan.input_slots.items()}
        if [names.get(slot) for slot in planned.reads] == head["reads"] and len(planned.writes) == head["write_count"]:
            return planned.step.compiled
    raise EPFail("the model's files changed while a session that was recalled from the cache was using them")


def _plan(head: Mapping[str, PlainData], provider: str, compiled: CompiledPartition) -> ExecutionPlan:
    """Return the plan of a graph without nodes: the inputs' slots come first, then those that the partition writes."""
    inputs, outputs = (_values_from_data(each) for each in head["graph"])
    graph = Graph("recalled", inputs, outputs)
    in_slots = {value.name: slot for slot, value in enumerate(inputs)}
    count, written = len(inputs), int(head["write_count"])
    out_slots = {value.name: count + place for value, place in zip(outputs, head["writes"], strict=True)}
    reads = tuple(in_slots[name] for name in head["reads"])
    step = PlannedStep(
        PartitionStep(head["partition"], provider, compiled, written), reads, tuple(range(count, count + written)), ()
    )
    return ExecutionPlan(graph, (step,), [None] * (count + written), in_slots, out_slots, ())


def _values_to_data(values: tuple[Value, ...]) -> PlainData:
    return [[value.name, type_to_data(value.type)] for value in values]


def _values_from_data(data: PlainData) -> list[Value]:
    return [Value(name, type_from_data(of)) for name, of in data]


@functools.cache
def _installed() -> tuple[tuple[str, str], ...]:
    """Return what tells the installed packages that decide what is compiled."""
    specs = {name: importlib.util.find_spec(name) for name in ("llvmlite", "ml_dtypes", "onnx")}
    origins = {name: None if spec is None or spec.origin is None else spec.origin for name, spec in specs.items()}
    return tuple((name, json.dumps(None if at is None else identity_of(at))) for name, at in origins.items())
