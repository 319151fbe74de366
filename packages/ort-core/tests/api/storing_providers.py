"""Fake providers that store what they compile: one leaves the graph to the core, one keeps all of it in its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ort_core.ir.model import Model
from ort_core.plugin import CompiledPartition, CompileRequest, KernelPartition, Rejection
from ort_core.plugin.kernels import BoundGraph
from ort_core.testing.fake_providers import EchoProvider

_MARK = b"stored by a fake provider: "


class _StoredPartition(KernelPartition):
    def __init__(self, request: CompileRequest, store: Callable[[CompileRequest], bytes]) -> None:
        super().__init__(BoundGraph(request.graph, request.context))
        self._request, self._store = request, store

    def serialize(self) -> bytes:
        return self._store(self._request)


class StoringProvider(EchoProvider):
    """Stores a mark and the name of the partition; the graph comes back from the core.

    ``loaded`` echoes, by class, the partitions that were restored; ``sdk`` is the version of its SDK.
    """

    name: ClassVar[str] = "StoringExecutionProvider"
    sdk: ClassVar[str] = "1.0"
    loaded: ClassVar[list[str]] = []

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Bind the reference kernels."""
        type(self).compiled.append(tuple(node.op_type for node in request.graph))
        return _StoredPartition(request, lambda given: _MARK + given.name.encode())

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Bind the reference kernels again, if the bytes are as they were."""
        if blob != _MARK + request.name.encode():
            return Rejection("the bytes are not those of this partition")
        type(self).loaded.append(request.name)
        return _StoredPartition(request, lambda given: _MARK + given.name.encode())

    def cache_key(self) -> str:
        """Return name, options and version."""
        return f"{super().cache_key()}|SDK {self.sdk}"


class EngineProvider(StoringProvider):
    """Stores the whole partition as an ONNX model, weights included, like a vendor's engine file."""

    name: ClassVar[str] = "EngineExecutionProvider"
    loads_without_graph: ClassVar[bool] = True

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Bind the reference kernels."""
        type(self).compiled.append(tuple(node.op_type for node in request.graph))
        return _StoredPartition(request, _as_model)

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Bind the reference kernels of the graph in the bytes."""
        from ort_core.errors import OrtError
        from ort_core.onnx_io.load import load_model

        try:
            model = load_model(blob)
        except OrtError as error:
            return Rejection(f"the bytes are no engine: {error}")
        type(self).loaded.append(request.name)
        return KernelPartition(BoundGraph(model.graph.root(), request.context))


def storing_of(base: type[StoringProvider], *operators: str, **attributes: object) -> type[StoringProvider]:
    """Return a new class for some operators, with records of its own."""
    return type(base.__name__, (base,), {"operators": frozenset(operators), "compiled": [], "loaded": [], **attributes})


def _as_model(request: CompileRequest) -> bytes:
    from ort_core.onnx_io.save import model_to_bytes

    return model_to_bytes(Model(request.graph, dict(request.context.opset_imports)))
