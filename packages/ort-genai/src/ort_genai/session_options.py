"""Session options as ``genai_config.json`` states them for a part of a model."""

from __future__ import annotations

from collections.abc import Mapping

import ort_core
from ort_genai.errors import InvalidModelFolder

_COUNTS = ("intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "log_verbosity_level")
_LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")


def session_options(stated: object) -> ort_core.SessionOptions:
    """Return options of a section ``session_options``: threads, logs, the level of optimization, config entries.

    What is about memory patterns and arenas is onnxruntime's own, and left out.

    Raises:
        InvalidModelFolder: a value is of another kind.
    """
    made = ort_core.SessionOptions()
    given = stated if isinstance(stated, Mapping) else {}
    for name in _COUNTS:
        value = given.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidModelFolder(f"genai_config.json has session_options.{name} = {value!r}, expected a number")
        setattr(made, name, value)
    level = given.get("graph_optimization_level")
    if level is not None:
        if level not in _LEVELS:
            raise InvalidModelFolder(
                f"genai_config.json has session_options.graph_optimization_level = {level!r}; expected one of "
                f"{', '.join(_LEVELS)}"
            )
        made.graph_optimization_level = getattr(ort_core.GraphOptimizationLevel, str(level))
    entries = given.get("config_entries")
    for name, value in entries.items() if isinstance(entries, Mapping) else ():
        made.add_session_config_entry(str(name), str(value))
    return made
