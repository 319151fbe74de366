"""Sessions that must run natively: a refusal, or a run that gives way to the reference kernels, fails the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto

import ort_core as ort
from ort_core.cpu.partition import segments
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.tolerances import ToleranceName, compare

Feeds = Mapping[str, np.ndarray]
Check = Callable[..., None]


def run_reference(model: ModelProto, feeds: Feeds) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    return list(session.run(None, dict(feeds)))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelProto], ort.InferenceSession]:
    """Return sessions on the CPU provider of which every node is compiled and stays so."""
    original = CpuPartition.__init__

    def spy(self: CpuPartition, *arguments: object, **named: object) -> None:
        original(self, *arguments, **named)  # type: ignore[arg-type]  # passed on as they came
        assert not self.refusals, {node.op_type: reason for node, reason in self.refusals.items()}

    def give_way(*_: object) -> None:
        raise AssertionError("a native program gave way to the reference kernels")

    def build(model: ModelProto) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        with monkeypatch.context() as patch:
            patch.setattr(CpuPartition, "__init__", spy)
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        monkeypatch.setattr(segments.LazyKernels, "run", give_way)
        return session

    return build


@pytest.fixture
def check(compiled: Callable[[ModelProto], ort.InferenceSession]) -> Check:
    """Return a comparison of a compiled model with the reference provider over several feeds."""

    def compare_all(model: ModelProto, every: Sequence[Feeds], tolerance: ToleranceName = "approximate") -> None:
        expected = [run_reference(model, feeds) for feeds in every]
        session = compiled(model)
        for feeds, truth in zip(every, expected, strict=True):
            found = session.run(None, dict(feeds))
            for name, left, right in zip([o.name for o in session.get_outputs()], found, truth, strict=True):
                sizes = {key: value.shape for key, value in feeds.items()}
                assert (left.dtype, left.shape) == (right.dtype, right.shape), f"{name} at {sizes}"
                comparison = compare(left, right, tolerance if right.dtype.kind == "f" else "exact")
                assert comparison.passes, f"{name} at {sizes}: {comparison}"

    return compare_all


@pytest.fixture
def same_bits() -> Check:
    """Return a check that a model gives the same bits with one, two and three threads."""

    def run_all(model: ModelProto, feeds: Feeds) -> None:
        found = []
        for threads in (1, 2, 3):
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            found.append([value.tobytes() for value in session.run(None, dict(feeds))])
        assert found[0] == found[1], "two threads give other bits than one"
        assert found[0] == found[2], "three threads give other bits than one"

    return run_all
