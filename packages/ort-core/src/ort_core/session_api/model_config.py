"""Session options that a model carries in its own metadata (key ``ort_config``), as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from ort_core.errors import InvalidArgument
from ort_core.options import SessionOptions

log = logging.getLogger(__name__)
KEY = "ort_config"
_ALLOWED = (
    "inter_op_num_threads", "intra_op_num_threads", "execution_mode", "graph_optimization_level", "enable_profiling",
)  # fmt: skip


def apply_model_config(metadata: Mapping[str, str], options: SessionOptions) -> None:
    """Set what the model's ``ort_config`` says under ``session_options``; other parts are for other programs.

    Raises:
        InvalidArgument: the text is not a JSON object, or a value does not fit its option.
    """
    text = metadata.get(KEY)
    if text is None:
        return
    try:
        wanted = json.loads(text)["session_options"]
        entries = dict(wanted)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"the model's metadata {KEY!r} is not a JSON object with 'session_options': {error}"
        ) from error
    for name, value in entries.items():
        if name in _ALLOWED:
            setattr(options, name, value)
        else:
            log.warning("the model's metadata %r has %r, which a model may not set; ignored", KEY, name)
