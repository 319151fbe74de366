"""The operations that numpy computes here: coremltools infers no value of them, or a wrong one."""

from __future__ import annotations

from collections.abc import Mapping

from ort_ep_coreml.evaluation.indexing import INDEXED_VALUES
from ort_ep_coreml.evaluation.quantized import QUANTIZED_VALUES
from ort_ep_coreml.evaluation.recurrent import RECURRENT_VALUES
from ort_ep_coreml.evaluation.resizing import RESIZED_VALUES
from ort_ep_coreml.evaluation.values import Value
from ort_ep_coreml.evaluation.windows import WINDOW_VALUES

OWN_VALUES: Mapping[str, Value] = {
    **WINDOW_VALUES,
    **RESIZED_VALUES,
    **INDEXED_VALUES,
    **RECURRENT_VALUES,
    **QUANTIZED_VALUES,
}
"""Functions of the inputs by name, by operation."""
