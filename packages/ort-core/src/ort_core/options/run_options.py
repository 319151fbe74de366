"""RunOptions: how one run goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ort_core.errors import InvalidType
from ort_core.options.option import Option
from ort_core.options.strict_options import ANY_SIZE, ONE_LOGGER, SEVERITIES, StrictOptions
from ort_core.settings import Scope

_ALL_STEPS = "a run computes all outputs and returns those asked for; `ort extract` makes a model of what a few need"


class RunOptions(StrictOptions):
    """How one run goes. ``terminate`` may be set from another thread; the last two go beyond onnxruntime."""

    _scope = Scope.RUN

    log_severity_level = Option(
        int,
        -1,
        "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1: as the session.",
        range=SEVERITIES,
        no_effect=ONE_LOGGER,
    )
    log_verbosity_level = Option(int, 0, "Detail of verbose lines.", no_effect=ONE_LOGGER)
    logid = Option(str, "", "Name of the run in log lines.", no_effect=ONE_LOGGER)
    only_execute_path_to_fetches = Option(
        bool, False, "Run only the nodes that the asked-for outputs need.", no_effect=_ALL_STEPS
    )
    terminate = Option(bool, False, "Stop every run that uses these options, with RunTerminated.")
    time_limit_s = Option(
        cast("type[float | None]", float),
        None,
        "Seconds after which the run ends with RunTimeout.",
        range=ANY_SIZE,
        optional=True,
    )
    max_allocation_bytes = Option(
        cast("type[int | None]", int),
        cast("int | None", None),
        "Most bytes the run may hold; None: as the session.",
        range=ANY_SIZE,
        optional=True,
    )

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[object] = []

    def add_run_config_entry(self, key: str, value: str, /) -> None:
        """Set one configuration entry. Raises as ``SessionOptions.add_session_config_entry``."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str, /) -> str:
        """Return an entry that was set (``UnknownOption`` otherwise)."""
        return self._entry(key)

    def add_active_adapter(self, adapter: object, /) -> None:
        """Feed the parameters of a loaded LoraAdapter to this run."""
        if not hasattr(adapter, "parameters"):
            raise InvalidType(f"the adapter is a {type(adapter).__name__}, expected a LoraAdapter")
        self._adapters.append(adapter)

    @property
    def active_adapters(self) -> Sequence[object]:
        """The adapters added, in order."""
        return self._adapters
