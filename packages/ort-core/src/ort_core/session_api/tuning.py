"""Tuning records of onnxruntime: kernels here are tuned by their provider, so each record is refused."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.errors import InvalidType


def refuse_tuning(record: object, index: int, providers: Sequence[str]) -> str:
    """Return why a record, number ``index`` in its list, is not taken by a session of these providers.

    Raises:
        InvalidType: it is no record.
    """
    if not isinstance(record, dict) or not {"ep", "results", "validators"} <= record.keys():
        raise InvalidType(f"the tuning record {index} is {record!r}, expected a dict with ep, results and validators")
    provider = record["ep"]
    if provider not in providers:
        return f"Cannot find execution provider {provider}; the session has {', '.join(providers)}"
    return f"Invalid TuningResults (index={index}). {provider} does not support TunableOp: it tunes its kernels itself"
