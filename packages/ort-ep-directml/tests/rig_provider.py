"""Sessions on the rig, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rig_dml import RigDmlProvider

import ort_core as ort
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_core.testing.models import model_of


def rig_plugin():
    """The provider as an installed package would bring it."""
    return plugin_of(RigDmlProvider, name="directml_rig")


def session_of(model: object, *, options: Mapping[str, object] | None = None, strict: bool = True):
    """A session on the rig alone; a node that it refuses is an error when ``strict``. Text is that of a graph."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.strict_placement = strict
    source = model_of(model, opsets='"" : 21, "com.microsoft" : 1') if isinstance(model, str) else model
    providers: list[Any] = [(RigDmlProvider.name, dict(options or {}))]
    providers += [] if strict else ["CPUExecutionProvider"]
    with installed(rig_plugin()):
        return ort.InferenceSession(source, settings, providers=providers, enable_fallback=False)


def run(model: object, feeds: Mapping[str, np.ndarray], **arguments: Any) -> list[np.ndarray]:
    """Results of a graph on the rig."""
    with session_of(model, **arguments) as session:
        return session.run(None, feeds)
