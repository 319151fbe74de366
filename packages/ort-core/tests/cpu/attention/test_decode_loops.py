"""Decode loops: caches in the caller's memory are appended to where they lie, and a step plans and compiles nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from test_groups import model_of

import ort_core as ort
from ort_core.cpu.codegen.machine_code import code_cache
from ort_core.cpu.direct.direct_calls import OPEN_AFTER
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.program import program as cpu_program
from ort_core.cpu.program import program_building
from ort_core.session_api.io_binding import IOBinding
from ort_core.tolerances import compare

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
ROWS, SIZE, HEADS = 12, 8, 2
MARK = np.float32(77)


def grouped_query_model() -> ModelProto:
    """A decoder layer's attention with caches of fixed room, ``lengths`` of which count."""
    inputs = {
        "q": (FLOAT, ["B", "S", 2 * HEADS * SIZE]), "k": (FLOAT, ["B", "S", HEADS * SIZE]),
        "v": (FLOAT, ["B", "S", HEADS * SIZE]), "pk": (FLOAT, ["B", HEADS, ROWS, SIZE]),
        "pv": (FLOAT, ["B", HEADS, ROWS, SIZE]), "lengths": (INT32, ["B"]),
    }  # fmt: skip
    node = helper.make_node(
        "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "lengths", "total"], ["y", "nk", "nv"],
        domain="com.microsoft", num_heads=2 * HEADS, kv_num_heads=HEADS,
    )  # fmt: skip
    return model_of([node], inputs, dict.fromkeys(["y", "nk", "nv"], FLOAT), {"total": np.array(ROWS, np.int32)})


def growing_model() -> ModelProto:
    """The same with caches that grow: a Concat of the past and what is new, as exporters write it."""
    inputs = {
        "q": (FLOAT, [1, HEADS, 1, SIZE]), "k": (FLOAT, [1, HEADS, 1, SIZE]), "v": (FLOAT, [1, HEADS, 1, SIZE]),
        "pk": (FLOAT, [1, HEADS, "P", SIZE]), "pv": (FLOAT, [1, HEADS, "P", SIZE]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Concat", ["pk", "k"], ["nk"], axis=2),
        helper.make_node("Concat", ["pv", "v"], ["nv"], axis=2),
        helper.make_node("Transpose", ["nk"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "nv"], ["y"]),
    ]
    return model_of(nodes, inputs, dict.fromkeys(["y", "nk", "nv"], FLOAT))


def steps(model: ModelProto, count: int) -> Iterator[dict[str, np.ndarray]]:
    """What a step is fed besides its caches."""
    wanted = {i.name: [d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    for number in range(count):
        rng = np.random.default_rng(number)
        fed = {name: rng.standard_normal(wanted[name]).astype(np.float32) for name in ("q", "k", "v")}
        if "lengths" in wanted:
            fed["lengths"] = np.array([number], np.int32)
        yield fed


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(compare(found, expected, "approximate").passes)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a program was planned, run from Python, lowered or compiled, and bound outputs were copied."""
    found = dict.fromkeys(("plans", "runs", "lowered", "compiled", "copied"), 0)

    def counted(owner: object, name: str, what: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: object, **named: object) -> object:
            found[what] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    counted(cpu_program.ProgramPlan, "__init__", "plans")
    counted(cpu_program.NativeProgram, "run", "runs")
    counted(CpuPartition, "_lower", "lowered")
    counted(code_cache, "compiled_together", "compiled")
    counted(program_building, "compiled_together", "compiled")
    counted(IOBinding, "accept", "copied")
    return found


@pytest.mark.unguarded
def test_caches_bound_as_past_and_present_grow_where_they_lie(counts: dict[str, int]) -> None:
    model = grouped_query_model()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = {name: np.zeros((1, HEADS, ROWS, SIZE), np.float32) for name in ("pk", "pv")}
    caches = {name: ort.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in expected.items()}
    binding = session.io_binding()
    for past, present in (("pk", "nk"), ("pv", "nv")):
        binding.bind_ortvalue_input(past, caches[past])
        binding.bind_ortvalue_output(present, caches[past])
    counts["plans"] = 0
    for number, fed in enumerate(steps(model, ROWS)):
        if number == 3:  # a signature is run natively when it has come twice
            for name, cache in caches.items():
                cache.numpy()[:, :, number + 1 :] = MARK
                assert same(cache.numpy()[:, :, :number], expected[name][:, :, :number])
            before = dict(counts)
        for name, array in fed.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        y, expected["pk"], expected["pv"] = oracle.run(["y", "nk", "nv"], {**fed, **expected})
        found = dict(zip(binding.output_names(), binding.get_outputs(), strict=True))
        assert same(found["y"].numpy(), y)
        for past, present in (("pk", "nk"), ("pv", "nv")):
            assert found[present] is caches[past]
            assert same(caches[past].numpy()[:, :, : number + 1], expected[past][:, :, : number + 1])
            if number >= 3:
                assert (caches[past].numpy()[:, :, number + 1 :] == MARK)[:, :, 1:].all(), "what is behind was written"
    assert counts["plans"] == 1
    assert counts == before, "steps in place run no Python code of the program, copy nothing, and plan nothing"


@pytest.mark.unguarded
def test_a_loop_whose_past_grows_compiles_nothing_and_python_plans_the_first_lengths_alone(
    counts: dict[str, int],
) -> None:
    model = growing_model()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    caches = {name: np.zeros((1, HEADS, 0, SIZE), np.float32) for name in ("pk", "pv")}
    before: dict[str, int] = {}
    for number, fed in enumerate(steps(model, 20)):
        if number == 1:
            before = dict(counts)
        y, caches["pk"], caches["pv"] = session.run(["y", "nk", "nv"], {**fed, **caches})
        assert caches["pk"].shape[2] == number + 1
        scores = fed["q"].astype(np.float64) @ np.swapaxes(caches["pk"], -1, -2).astype(np.float64)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ caches["pv"].astype(np.float64)
        assert same(y, expected.astype(np.float32))
        np.testing.assert_array_equal(caches["pk"][:, :, -1:], fed["k"])
    assert counts["plans"] == OPEN_AFTER + 1, "native code evaluates the sizes of all others"
    assert (counts["lowered"], counts["compiled"]) == (before["lowered"], before["compiled"])


def test_an_output_bound_to_the_memory_of_another_input_is_right_all_the_same() -> None:
    model = grouped_query_model()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    fed = next(steps(model, 1))
    caches = {name: rng.standard_normal((1, HEADS, ROWS, SIZE)).astype(np.float32) for name in ("pk", "pv")}
    expected = session.run(["y", "nk", "nv"], {**fed, **caches})
    for _ in range(4):  # by the ordinary run, then by native calls
        values = {name: ort.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in caches.items()}
        binding = session.io_binding()
        for name, array in fed.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y")
        for past, present in (("pk", "nv"), ("pv", "nk")):  # each in the other's
            binding.bind_ortvalue_input(past, values[past])
            binding.bind_ortvalue_output(present, values[past])
        session.run_with_iobinding(binding)
        found = dict(zip(binding.output_names(), binding.get_outputs(), strict=True))
        for name, each in zip(["y", "nk", "nv"], expected, strict=True):
            np.testing.assert_array_equal(found[name].numpy(), each)
