"""What a session keeps between runs of many sizes: memory of the last used ones, and none for caches of the caller."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.cpu.direct import direct_calls
from ort_core.cpu.program import program as cpu_program
from ort_core.cpu.program.output_memory import LEAST, OutputMemory
from ort_core.cpu.program.program import MAX_ARENAS, ProgramPlan

MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 8] x, float[8, 8] w) => (float[N, 8] y) { h = MatMul(x, w) y = Softmax(h) }"""
CACHES = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[1, 1, 256] q, float[1, 1, 128] k, float[1, 1, 128] v, float[1, 2, 1024, 64] pk, float[1, 2, 1024, 64] pv,
       int32[1] lengths) => (float[1, 1, 256] y, float[1, 2, 1024, 64] nk, float[1, 2, 1024, 64] nv)
    <int32 total = {1024}>
    { y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
        (q, k, v, pk, pv, lengths, total) }"""


def session_of(text: str) -> ort.InferenceSession:
    return ort.InferenceSession(parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.unguarded
def test_the_sizes_that_were_run_last_keep_memory_and_older_ones_none(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, make = list[ProgramPlan](), ProgramPlan.__init__

    def noted(self: ProgramPlan, *arguments: object) -> None:
        plans.append(self)
        make(self, *arguments)

    monkeypatch.setattr(ProgramPlan, "__init__", noted)
    monkeypatch.setattr(cpu_program.NativeProgram, "bind", lambda *_: None)  # every run is an ordinary one
    monkeypatch.setattr(direct_calls, "OPEN_AFTER", 1 << 30)
    session = session_of(MODEL)
    w = np.eye(8, dtype=np.float32)
    for size in [*range(1, 3 * MAX_ARENAS), *range(1, 3 * MAX_ARENAS)]:
        session.run(None, {"x": np.zeros((size, 8), np.float32), "w": w})
        keeping = [place for place, plan in enumerate(plans) if plan._states]
        assert len(keeping) <= MAX_ARENAS
        assert size - 1 in keeping, "what was run last runs in the same memory again"
    assert len(plans) == 3 * MAX_ARENAS - 1, "one for each size"


@pytest.mark.unguarded
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound as both", "returned"])
def test_caches_that_grow_where_they_lie_let_no_memory_lie_idle(monkeypatch: pytest.MonkeyPatch, is_bound) -> None:
    leased, memories, lease = list[int](), set[OutputMemory](), OutputMemory.empty

    def noted(self: OutputMemory, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        found = lease(self, shape, dtype)
        memories.add(self)
        leased.append(found.nbytes)
        return found

    monkeypatch.setattr(OutputMemory, "empty", noted)
    session, rng = session_of(CACHES), np.random.default_rng(0)
    binding = session.io_binding()
    for name, shape in {"q": (1, 1, 256), "k": (1, 1, 128), "v": (1, 1, 128)}.items():
        binding.bind_cpu_input(name, rng.standard_normal(shape).astype(np.float32))
    binding.bind_cpu_input("lengths", np.zeros(1, np.int32))
    binding.bind_output("y")
    for past, present in (("pk", "nk"), ("pv", "nv")):
        cache = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 2, 1024, 64), np.float32))
        binding.bind_ortvalue_input(past, cache)
        if is_bound:
            binding.bind_ortvalue_output(present, cache)
        else:
            binding.bind_output(present)
    for _ in range(5):
        session.run_with_iobinding(binding)
    assert any(nbytes >= LEAST for nbytes in leased) != is_bound
    assert all(memory._limit == 0 for memory in memories) == is_bound
