"""InferenceSession: calls the stages in order; how it runs and what it tells are its two bases."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ort_core.arguments import strings, takes
from ort_core.cache.about import About, writing_about
from ort_core.collecting import paused_collection
from ort_core.environment import Environment, default_environment
from ort_core.errors import EPFail, InvalidGraph, InvalidType, InvalidValue, UnknownOption, did_you_mean
from ort_core.forks import new_lock, no_fork
from ort_core.ir.rejection import Rejection
from ort_core.options import SessionOptions
from ort_core.passes.take_defaults import ShownValues
from ort_core.runtime.profiler import Profiler
from ort_core.session_api.loaded_model import LoadedModel
from ort_core.session_api.model_source import Loadable, ModelSource, distinguish_sizes
from ort_core.session_api.node_arg import ModelMetadata
from ort_core.session_api.provider_request import Providers, Request, normalized, provider_request
from ort_core.session_api.running import BackgroundRunsState
from ort_core.session_api.runs import SessionRuns
from ort_core.session_api.session_cache import SessionCacheEntry, find_cache_entry
from ort_core.session_api.tuning import refuse_tuning
from ort_core.settings import environment_value
from ort_core.stages.settings import takes_short_cuts

if TYPE_CHECKING:
    from ort_core import stages
    from ort_core.ir.model import Model
    from ort_core.ir.values import Value

log = logging.getLogger(__name__)
_KEYWORDS = ("enable_fallback", "read_config_from_model", "disabled_optimizers")


class InferenceSession(SessionRuns):
    """A model that is ready to run. ``run`` is safe from many threads.

    Args:
        path_or_bytes: a path, bytes, memoryview, binary file object or ``onnx.ModelProto``.
        sess_options: how to load, optimize and place; copied.
        providers: names, or (name, options), most wanted first; the default ones when not given.
        provider_options: one mapping for each name in ``providers``.
        **kwargs: ``disabled_optimizers`` (names of passes), ``enable_fallback`` (True), ``read_config_from_model``.

    Raises:
        OrtError: the model cannot be loaded, an option is unknown, or no provider that was asked for is available.
    """

    _options_type: ClassVar[type[SessionOptions]] = SessionOptions

    def __init__(
        self,
        path_or_bytes: Loadable,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        **kwargs: object,
    ) -> None:
        options = self._options_type() if sess_options is None else sess_options
        if not isinstance(options, SessionOptions):
            raise InvalidType(f"sess_options is a {type(options).__name__}, expected SessionOptions")
        unknown = next((name for name in kwargs if name not in _KEYWORDS), None)
        if unknown is not None and options.unknown_is_error:
            raise UnknownOption(
                f"InferenceSession takes no argument {unknown!r}.{did_you_mean(unknown, list(_KEYWORDS))} "
                f"Beyond the first four: {', '.join(_KEYWORDS)}"
            )
        self._environment = default_environment()
        self._source = ModelSource(path_or_bytes)
        self._options = options.copy()
        self._keywords = kwargs
        self._fallback = bool(kwargs.get("enable_fallback", True))
        self._background = BackgroundRunsState()
        self._placing = new_lock()
        self._profiler = Profiler(options.profile_file_prefix) if options.enable_profiling else None
        self._load(lambda metadata: self._requested(providers, provider_options, metadata))

    def _load(self, find_request: Callable[[Mapping[str, str]], Request | None]) -> None:
        path, level = self._source.path, self._options.graph_optimization_level
        model = "" if path is None else os.path.abspath(os.fsdecode(path))
        about = About(model, getattr(level, "name", str(level)))
        with paused_collection(), no_fork(), np.errstate(all="ignore"), writing_about(about):
            self._load_whole(find_request)

    def _load_whole(self, find_request: Callable[[Mapping[str, str]], Request | None]) -> None:
        """Look the session up in the cache; where it is not there, prepare its model and put it there."""
        start = time.perf_counter_ns()
        is_cacheable = self._may_be_recalled()
        request = find_request({}) if is_cacheable else None
        entry = self._cache_entry(request) if is_cacheable else None
        if entry is not None and self._recall(entry, request):
            return
        self._prepare(start, request, find_request, entry)

    def _prepare(
        self, start: int, request: Request | None, find_request: Callable[[Mapping[str, str]], Request | None],
        entry: SessionCacheEntry | None,
    ) -> None:  # fmt: skip
        """Load and prepare the model, and store the session in its entry of the cache, if it has one."""
        from ort_core.session_api.shown_values import DeclaredValues  # a session out of the cache holds what it shows

        model = self._source.load(self._options)
        if self._keywords.get("read_config_from_model", environment_value("ORT_LOAD_CONFIG_FROM_MODEL")):
            from ort_core.session_api.model_config import apply_model_config  # few models have one

            apply_model_config(model.metadata, self._options)
            if self._profiler is None and self._options.enable_profiling:
                self._profiler = Profiler(self._options.profile_file_prefix)
        self._record("model_loading_array" if self._source.path is None else "model_loading_uri", start)
        start = time.perf_counter_ns()
        metadata = ModelMetadata.of(model)
        request = find_request(metadata.as_texts(model.producer_version)) if request is None else request
        declared = DeclaredValues.of(model, self._source.has_fixed_sizes)
        files = [] if entry is None else self._source.files(self._options, model)
        prepare = self._preparation(request)
        prepared = prepare(model)
        shown = declared.shown(prepared.shown or ShownValues.of(prepared.model))
        if entry is not None:
            entry.store(prepared, shown, metadata, files)
        self._loaded = LoadedModel.of(prepared, shown, metadata, request, prepare, self, self._direct_refusal())
        self._record("session_initialization", start)
        if self._profiler is not None:
            self._profiler.providers = {node.name: node.provider for node in prepared.report.nodes if node.name}
            self._profiler.default_provider = prepared.providers[0]
        self._save(prepared, shown.outputs)

    def _direct_refusal(self) -> Rejection | None:
        """Return why no run is to be made by one native call, if so."""
        if self._profiler is not None:
            return Rejection("runs are profiled node by node")
        return None if takes_short_cuts(self._options) else Rejection("short cuts are switched off")

    def _save(self, prepared: stages.PreparedModel, shown: Sequence[Value]) -> None:
        from ort_core.session_api.compiled_file import save_compiled  # a session out of the cache saves nothing
        from ort_core.session_api.optimized_file import save_optimized

        save_optimized(prepared, shown, self._options, self._environment, self._disabled_passes())
        save_compiled(prepared, self._options, self._source.path)

    def _preparation(self, request: Request | None) -> partial[stages.PreparedModel]:
        """Return what prepares the model; without self: what closes the plans must not keep the session."""
        return partial(_prepare, self._source, self._options, self._environment, request, self._disabled_passes())

    def _may_be_recalled(self) -> bool:
        """Return whether a load does nothing but prepare a model, by options whose ``repr`` tells them."""
        options = self._options
        reads_config = self._keywords.get("read_config_from_model", environment_value("ORT_LOAD_CONFIG_FROM_MODEL"))
        writes = options.optimized_model_filepath or options.enable_profiling or options.setting("ep.context_enable")
        is_plain = takes_short_cuts(options) and not options.holds_objects
        is_told = self._source.path is not None or bool(options.setting("session.recalls_bytes"))
        return is_told and is_plain and not (reads_config or writes)

    def _cache_entry(self, request: Request | None) -> SessionCacheEntry | None:
        model = self._source.identity(self._options)
        if model is None:  # there is no such file, or the bytes are gone
            return None
        if request is None:  # as when providers are selected
            request = [(name, {}) for name in self._environment.default_providers()]
        entry = find_cache_entry(model, self._options, self._environment, request, self._disabled_passes())
        if isinstance(entry, Rejection):
            log.debug("the session is not looked for in the cache: %s", entry)
            return None
        return entry

    def _recall(self, entry: SessionCacheEntry, request: Request | None) -> bool:
        """Take the session out of the cache; False where it is not there as it has to be."""
        prepare = self._preparation(request)
        source, options = self._source, self._options
        found = entry.recall(lambda: prepare(source.load(options)))
        if found is not None:
            self._loaded = LoadedModel.recalled(found, request, prepare, self)
            log.info("the session comes from the cache")
        return found is not None

    def _requested(
        self,
        providers: Providers | None,
        provider_options: Sequence[Mapping[str, object]] | None,
        metadata: Mapping[str, str],
    ) -> Request | None:
        return provider_request(providers, provider_options, self._options, self._environment, metadata)

    def _fall_back(self, error: EPFail, failed: LoadedModel) -> bool:
        with self._placing:
            if self._loaded is not failed:  # another thread has placed the model anew in the meantime
                return True
            request = failed.request
            if not self._fallback or request is None or len(request) < 2:
                return False
            from ort_core.stages import PlacementWarning  # a load has paid for it, or never needs it

            warnings.warn(f"{error}; running on {request[1][0]} from now on", PlacementWarning, stacklevel=5)
            self._load(lambda _: request[1:])
            return True

    def _disabled_passes(self) -> frozenset[str]:
        given = self._keywords.get("disabled_optimizers") or ()
        if not isinstance(given, Iterable):
            raise InvalidType(f"disabled_optimizers is {given!r}, expected a list of names of passes")
        return frozenset([given] if isinstance(given, str) else [str(name) for name in given])

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[str, object]] | None = None
    ) -> None:
        """Place the model anew, on other providers. Not to be called while runs are going on."""
        request = normalized(providers, provider_options) if providers else None
        with self._placing:
            previous = self._loaded
            self._load(lambda _: request)
            previous.close()

    def enable_fallback(self) -> None:
        """Go on to the next provider that was asked for when one fails in a run."""
        self._fallback = True

    def disable_fallback(self) -> None:
        """Raise EPFail when a provider fails in a run."""
        self._fallback = False

    def end_profiling(self) -> str:
        """Write the trace and return its path; an empty string when profiling is off."""
        return "" if self._profiler is None else self._profiler.finish()

    def get_profiling_start_time_ns(self) -> int:
        """Return when profiling began, in nanoseconds since the epoch; 0 when it is off."""
        return 0 if self._profiler is None else self._profiler.start_wall_ns

    @takes(options=strings)
    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Check options that change while a session lives; no installed provider has any, so they have no effect."""
        for name, value in options.items():
            self._options.copy().add_session_config_entry(name, value)
            log.info("dynamic option %s has no effect on %s", name, self._loaded.providers)

    def get_tuning_results(self) -> list[dict[str, Any]]:  # Any: onnxruntime's own records
        """Return an empty list: no provider here keeps onnxruntime's tuning records."""
        return []

    def set_tuning_results(self, results: Iterable[object], *, error_on_invalid: bool = False) -> None:
        """Take no record: onnxruntime's mean nothing to the providers here. The log says so, or an error where asked.

        Raises:
            InvalidValue: there are records, and ``error_on_invalid``.
        """
        for index, record in enumerate(results):
            refusal = refuse_tuning(record, index, self._loaded.providers)
            if error_on_invalid:
                raise InvalidValue(refusal)
            log.warning("%s; ignored", refusal)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Release a captured graph (none is captured here)."""

    def close(self) -> None:
        """Give back what the session holds. Further runs are refused; closing twice does nothing."""
        self._background.close()
        self._loaded.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        return {
            "source": self._source, "options": self._options, "keywords": self._keywords,
            "request": self._loaded.request, "fallback": self._fallback,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:  # Any: pickled state
        self._environment = default_environment()
        self._source, self._options, self._keywords = state["source"], state["options"], state["keywords"]
        self._fallback = state["fallback"]
        self._background = BackgroundRunsState()
        self._placing = new_lock()
        self._profiler = Profiler(self._options.profile_file_prefix) if self._options.enable_profiling else None
        self._load(lambda _: state["request"])

    def __repr__(self) -> str:
        where = self._source.path or "given bytes"
        inputs = self._loaded.checker.described()
        return f"{type(self).__name__}({where!r}, inputs: {inputs}, providers: {self.get_providers()})"


def _prepare(
    source: ModelSource,
    options: SessionOptions,
    environment: Environment,
    request: Request | None,
    disabled_passes: frozenset[str],
    model: Model | None = None,
) -> stages.PreparedModel:
    """Prepare a model that was just loaded; without one, load it again and prepare it for uncommon runs.

    Those override defaults, or have different sizes where the model gives inputs one name.
    A model that is to be saved keeps its inputs: whoever loads the file may override them.
    """
    from ort_core import stages  # a session out of the cache prepares nothing

    is_general = model is None
    if model is not None and not options.optimized_model_filepath:
        try:
            return stages.prepare(
                model, options, environment, request, disabled_passes, source.folder, takes_defaults=True
            )
        except InvalidGraph as error:
            log.info("the model is invalid with its defaults, or altogether; prepared for overriding them: %s", error)
            model = None
    general = (source.load_again if is_general else source.load)(options) if model is None else model
    if is_general:
        distinguish_sizes(general)
    return stages.prepare(general, options, environment, request, disabled_passes, source.folder)
