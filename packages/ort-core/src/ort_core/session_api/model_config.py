"""Session options that a model carries in its own metadata (key ``ort_config``), as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Mapping

from ort_core.errors import InvalidValue
from ort_core.options import ExecutionMode, GraphOptimizationLevel, SessionOptions

log = logging.getLogger(__name__)
KEY = "ort_config"
_NUM_THREADS = range(1 << 31)
_ALLOWED: Mapping[str, tuple[Container[int], Callable[[int], object]]] = {  # which numbers, and what they mean
    "inter_op_num_threads": (_NUM_THREADS, int),
    "intra_op_num_threads": (_NUM_THREADS, int),
    "execution_mode": ([mode.value for mode in ExecutionMode], ExecutionMode),
    "graph_optimization_level": ([level.value for level in GraphOptimizationLevel], GraphOptimizationLevel),
    "enable_profiling": ((0, 1), bool),
}


def apply_model_config(metadata: Mapping[str, str], options: SessionOptions) -> None:
    """Set what the model's ``ort_config`` says under ``session_options``; other parts are for other programs.

    Raises:
        InvalidValue: the text is not a JSON object, or a value does not fit its option.
    """
    text = metadata.get(KEY)
    if text is None:
        return
    for name, value in _entries(text).items():
        if name in _ALLOWED:
            setattr(options, name, _fitting(name, value))
        else:
            log.warning("the model's metadata %r has %r, which a model may not set; ignored", KEY, name)


def _entries(text: str) -> Mapping[str, object]:
    """Return what stands under ``session_options``."""
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise InvalidValue(
            f"Json stored in the `{KEY}` key of the model's metadata cannot be parsed: {error}"
        ) from error
    entries = whole.get("session_options", {}) if isinstance(whole, dict) else {}
    if not isinstance(entries, dict):
        raise InvalidValue(f"'session_options' in the model's metadata {KEY!r} is no JSON object: {entries!r}")
    return entries


def _fitting(name: str, value: object) -> object:
    """Return the number of a model as its option takes it."""
    numbers, convert = _ALLOWED[name]
    if not isinstance(value, int):
        raise InvalidValue(f"{name} option in the model file must be an integer, found {value!r}")
    if value not in numbers:
        raise InvalidValue(f"Unsupported value for {name} option in the model file: {value}")
    return convert(value)
