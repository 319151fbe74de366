"""Prometheus' text of this process, or of all workers that share a folder of counts."""

from __future__ import annotations

import logging
import os

import psutil
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from ort_serve.statistics import FOLDER, Metrics

_log = logging.getLogger(__name__)


def metrics_text(metrics: Metrics) -> bytes:
    """Return the text that Prometheus reads."""
    metrics.bring_up_to_date()
    try:
        metrics.resident.set(psutil.Process().memory_info().rss)
    except (OSError, psutil.Error) as error:  # a sandbox may hide /proc
        _log.debug("the memory of this process is not known: %s", error)
    if FOLDER not in os.environ:
        return generate_latest(metrics.registry)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client annotates it in part
    return generate_latest(registry)
