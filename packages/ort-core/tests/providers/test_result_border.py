"""What a provider returns is compared with what was inferred, before anything reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import ort_core as ort
from ort_core.errors import EPFail
from ort_core.onnx_io.save import model_to_bytes
from ort_core.plugin import Available, CompileRequest, EagerPartition, KernelPartition, KernelProvider
from ort_core.plugin.kernels import BoundGraph, KernelRegistry, KernelSpec
from ort_core.providers.compiled import CompiledPartition, RunState
from ort_core.providers.provider import ExecutionProvider
from ort_core.stages.selection import PlacementWarning
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import EchoProvider, plugin_of
from ort_core.testing.models import model_of

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
CHAIN = """g (float[N, 3] x) => (float[N, 3] y) {
    [asked] a = Relu (x)
    b = Exp (a)
    y = Softmax (b)
}"""
Spoil = Callable[[np.ndarray], object]
LIES: dict[str, tuple[Spoil, str]] = {
    "another element type": (lambda a: a.astype(np.float64), r"float64\[2, 3\]"),
    "another element type of as many bytes": (lambda a: a.view(np.int32), r"int32\[2, 3\]"),
    "fewer rows": (lambda a: a[:1], r"float32\[1, 3\]"),
    "fewer columns": (lambda a: np.ascontiguousarray(a[:, :2]), r"float32\[2, 2\]"),
    "another rank": (lambda a: a.reshape(-1), r"float32\[6\]"),
    "no array": (lambda a: a.tolist(), "a list"),
    "nothing": (lambda a: None, "a NoneType"),
}


def _spoiling(spoil: Spoil) -> type[ExecutionProvider]:
    class Spoiled(EagerPartition):
        def __init__(self, partition: KernelPartition) -> None:
            super().__init__(1)
            self._partition = partition

        def compute(self, inputs: Sequence[object], run_state: RunState) -> Sequence[object]:
            return [spoil(np.asarray(result)) for result in self._partition.compute(inputs, run_state)]

    class Lying(EchoProvider):
        name = "LyingExecutionProvider"
        operators = ("Relu",)

        def compile(self, request: CompileRequest) -> CompiledPartition:
            return Spoiled(KernelPartition(BoundGraph(request.graph, request.context)))

    return Lying


def _own_kernels(spoil: Spoil) -> type[ExecutionProvider]:
    def relu(x: np.ndarray) -> object:
        return spoil(np.maximum(x, 0))

    def exp(x: np.ndarray) -> object:
        return np.exp(np.asarray(x, np.float32))

    registry = KernelRegistry()
    registry.add(KernelSpec("Relu", "", 1, None, relu))
    registry.add(KernelSpec("Exp", "", 1, None, exp))

    class OwnKernels(KernelProvider):
        name = "OwnKernelsExecutionProvider"

        @classmethod
        def check(cls) -> Available:
            return Available("here")

        def kernels(self) -> KernelRegistry:
            return registry

    return OwnKernels


@pytest.mark.parametrize("build", [_spoiling, _own_kernels])
@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_result_is_an_error_that_names_provider_and_node(
    lie: str, build: Callable[[Spoil], type[ExecutionProvider]]
) -> None:
    spoil, found = LIES[lie]
    provider = build(spoil)
    expected = rf"{provider.name} returned {found} for 'a' .*asked.*Relu.*expected float\[2, 3\]"
    with installed(plugin_of(provider)):
        session = _session(provider)
        session.disable_fallback()
        for _ in range(2):
            with pytest.raises(EPFail, match=expected):
                session.run(None, {"x": X})


def test_a_session_with_another_provider_goes_on_with_that_one() -> None:
    provider = _spoiling(lambda a: a[:1])
    with installed(plugin_of(provider)):
        session = _session(provider)
        with pytest.warns(PlacementWarning, match="running on CPUExecutionProvider from now on"):
            (y,) = session.run(None, {"x": X})
    assert y.shape == X.shape


@pytest.mark.parametrize("build", [_spoiling, _own_kernels])
def test_right_results_of_every_signature_pass(build: Callable[[Spoil], type[ExecutionProvider]]) -> None:
    provider = build(lambda a: a)
    with installed(plugin_of(provider)):
        session = _session(provider)
        for rows in (2, 1, 0, 5, 2):
            x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
            (y,) = session.run(None, {"x": x})
            powers = np.exp(np.exp(np.maximum(x, 0).astype(np.float64)))
            np.testing.assert_allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


def test_sizes_that_nothing_tells_are_not_compared() -> None:
    provider = _spoiling(lambda a: a)
    text = """g (float[N, 3] x, int64[2] s) => (float[P, Q] y) {
        r = Reshape (x, s)
        a = Relu (r)
        y = Exp (a)
    }"""
    with installed(plugin_of(provider)):
        model = model_to_bytes(model_of(text))
        session = ort.InferenceSession(model, providers=[provider.name, "CPUExecutionProvider"])
        (y,) = session.run(None, {"x": X, "s": np.array([3, 2])})
    np.testing.assert_allclose(y, np.exp(np.maximum(X, 0)).reshape(3, 2), rtol=1e-6)


def _session(provider: type[ExecutionProvider]) -> ort.InferenceSession:
    """Return a session in which what follows is native, and would read past the end."""
    return ort.InferenceSession(model_to_bytes(model_of(CHAIN)), providers=[provider.name, "CPUExecutionProvider"])
