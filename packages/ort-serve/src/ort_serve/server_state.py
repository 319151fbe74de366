"""What both HTTP and gRPC stand on: models, shared memory, settings that clients may change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ort_core.machine_memory import usable_memory
from ort_serve.failures import Forbidden, InvalidRequest, Unsupported
from ort_serve.protocol.requests import InferResponse
from ort_serve.protocol.shared_memory import SharedMemoryRegions
from ort_serve.repository.model_repository import ModelRepository
from ort_serve.rest.body import BodyBudget
from ort_serve.server_settings import ServerSettings
from ort_serve.statistics import Metrics
from ort_serve.tracing import Tracing

log = logging.getLogger(__name__)
_LEVELS = {
    "log_verbose_level": logging.DEBUG,
    "log_info": logging.INFO,
    "log_warning": logging.WARNING,
    "log_error": logging.ERROR,
}


@dataclass
class TraceSettings:
    """Which requests write a line with their times to the log: every ``rate``-th while ``is_on``."""

    is_on: bool = False
    rate: int = 1000
    seen: int = 0

    def values(self) -> dict[str, list[str]]:
        """Return the settings in the protocol's form."""
        return {"trace_level": ["TIMESTAMPS" if self.is_on else "OFF"], "trace_rate": [str(self.rate)]}

    def change(self, values: Mapping[str, object]) -> None:
        """Change what is named.

        Raises:
            InvalidRequest: a value cannot be read.
            Unsupported: the setting has no meaning here, such as a file: no request names one.
        """
        for name, value in values.items():
            texts = [str(item) for item in value] if isinstance(value, list) else [] if value is None else [str(value)]
            if name == "trace_level":
                if not set(texts) <= {"OFF", "TIMESTAMPS"}:
                    raise InvalidRequest(f"trace_level is OFF or TIMESTAMPS; found {texts}")
                self.is_on = "TIMESTAMPS" in texts
            elif name == "trace_rate":
                if texts and (not texts[0].isdecimal() or len(texts[0]) > 9 or int(texts[0]) < 1):
                    raise InvalidRequest(f"trace_rate is a number from 1 on; found {texts[0]!r}")
                self.rate = int(texts[0]) if texts else TraceSettings.rate
            else:
                raise Unsupported(f"trace setting {name!r} has no meaning here; there are trace_level and trace_rate")

    def is_wanted(self) -> bool:
        """Count a request, and return whether it is to be traced."""
        if not self.is_on:
            return False
        self.seen += 1
        return (self.seen - 1) % self.rate == 0

    def tell(self, found: InferResponse, seconds: float) -> None:
        """Write a request's line. Its id stands as Python writes texts: it may hold anything."""
        log.info("trace model=%s version=%s id=%r ms=%.3f", found.model, found.version, found.identifier, seconds * 1e3)


def _memory() -> int:
    """Return what this process may use, 0 where the system does not tell it: then one body at a time is taken."""
    try:
        return usable_memory()
    except OSError:
        return 0


@dataclass
class ServerState:
    """What a running server holds."""

    repository: ModelRepository
    settings: ServerSettings
    metrics: Metrics
    regions: SharedMemoryRegions = field(init=False)
    trace: TraceSettings = field(default_factory=TraceSettings)
    model_traces: dict[str, TraceSettings] = field(default_factory=dict)
    tracing: Tracing | None = None
    body_budget: BodyBudget = field(init=False)

    def __post_init__(self) -> None:
        limit = self.settings.limits.body_nbytes
        self.regions = SharedMemoryRegions(self.settings.no_shared_memory)
        self.body_budget = BodyBudget(max(_memory() // 4, limit))

    def trace_of(self, model: str) -> TraceSettings:
        """Return which requests of a model write a line: as the model's own settings say, else as the server's."""
        return self.model_traces.get(model, self.trace)

    def get_trace(self, model: str) -> TraceSettings:
        """Return the trace settings of a model; the server's for an empty name.

        Raises:
            NotFound: there is no such model.
        """
        if model:
            self.repository.versions(model)
        return self.trace_of(model)

    def change_trace(self, model: str, values: Mapping[str, object]) -> None:
        """Change the trace settings of a model, or the server's for an empty name: all that is named, or nothing.

        A setting of a model that is given as nothing is the server's again.

        Raises:
            NotFound: there is no such model.
            InvalidRequest: a value cannot be read.
            Unsupported: a setting has no meaning here.
        """
        changed = replace(self.get_trace(model))
        given = self.trace.values() if model else {}
        changed.change({name: given.get(name) if value in (None, []) else value for name, value in values.items()})
        if not model:
            self.trace = changed
        elif changed.values() == given:
            self.model_traces.pop(model, None)
        else:
            self.model_traces[model] = changed

    def need_loading(self) -> None:
        """Refuse what changes the models, unless the server was started for it.

        Raises:
            Forbidden: it was not.
        """
        if not self.settings.allows_loading:
            raise Forbidden(
                "this server's models are fixed; start it with --allow-loading to load and unload by requests"
            )

    def log_settings(self) -> dict[str, bool | int | str]:
        """Return the log settings in the protocol's form."""
        level = logging.getLogger("ort_serve").getEffectiveLevel()
        return {
            "log_info": level <= logging.INFO,
            "log_warning": level <= logging.WARNING,
            "log_error": level <= logging.ERROR,
            "log_verbose_level": int(level <= logging.DEBUG),
            "log_format": "default",
        }

    def change_log_settings(self, values: Mapping[str, object]) -> None:
        """Change how much is logged.

        Raises:
            InvalidRequest: a value is no boolean or number.
            Unsupported: the setting has no meaning here.
        """
        wanted = dict(self.log_settings())
        for name, value in values.items():
            if name not in _LEVELS:
                raise Unsupported(f"log setting {name!r} has no meaning here; there are {', '.join(_LEVELS)}")
            if not isinstance(value, (bool, int)):
                raise InvalidRequest(f"log setting {name!r} takes true, false or a number; found {value!r}")
            wanted[name] = value
        level = next((level for name, level in _LEVELS.items() if wanted[name]), logging.CRITICAL)
        logging.getLogger("ort_serve").setLevel(level)
