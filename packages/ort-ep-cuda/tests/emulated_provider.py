"""The provider on an emulated GPU: everything of it but its device is what runs on a real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

import ort_core as ort
from ort_core.plugin import Available, Unavailable
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_core.testing.models import model_of
from ort_ep_cuda.gpu import Gpu
from ort_ep_cuda.provider import CudaExecutionProvider


class EmulatedCudaProvider(CudaExecutionProvider):
    """As CudaExecutionProvider, on ``device``."""

    name: ClassVar[str] = "EmulatedCudaExecutionProvider"
    device: ClassVar[Gpu]

    @classmethod
    def check(cls) -> Available | Unavailable:
        return Available("emulated")

    def check_device(self) -> Available | Unavailable:
        return Available("emulated")

    def missing_library(self, op_type: str) -> str | None:
        return None

    def gpu(self) -> Gpu:
        return type(self).device


def session_of(
    body: str,
    *,
    opset: int = 21,
    options: dict | None = None,
    strict: bool = True,
    operators: Sequence[object] = (),
) -> ort.InferenceSession:
    """A session on the emulated GPU alone; a node that it refuses is an error when ``strict``.

    ``operators`` are a user's, of the domain ``com.acme``.
    """
    model = model_of(body, opsets=f'"" : {opset}, "com.microsoft" : 1' + (', "com.acme" : 1' if operators else ""))
    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        providers = [(EmulatedCudaProvider.name, options or {})]
        providers += [] if strict else ["CPUExecutionProvider"]
        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if operators:
            settings.register_custom_ops_library(ort.OpLibrary("acme", operators))
        return ort.InferenceSession(model, settings, providers=providers)


def run(body: str, feeds: dict[str, np.ndarray], **arguments) -> list[np.ndarray]:
    """Results of a graph on the emulated GPU."""
    return session_of(body, **arguments).run(None, feeds)
