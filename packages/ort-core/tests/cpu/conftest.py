"""Makes the modules beside these tests importable by them; checks of compiled image graphs, and pools of threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition import partition, segments
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.tolerances import compare

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # the latter for random_graphs


Agrees = Callable[..., None]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def pools() -> Iterator[list[ThreadPool]]:
    """Pools of one thread, of two, and of more than most machines' cores share evenly."""
    made = [ThreadPool(1), ThreadPool(2), ThreadPool(5)]
    yield made
    for pool in made:
        pool.close()


@pytest.fixture
def nothing_runs_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile groups of one node, too, and fail where kernels run."""
    monkeypatch.setattr(partition, "is_worth_a_program", lambda group, context: True)
    monkeypatch.delattr(segments.LazyKernels, "run")


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> list[CpuPartition]:
    """The partitions that a test's sessions compile as they load, to see what ran natively."""
    partitions: list[CpuPartition] = []
    build = CpuPartition.__init__

    def noted(self: CpuPartition, *arguments: object, **named: object) -> None:
        build(self, *arguments, **named)  # type: ignore[arg-type]  # passed on as they came
        if "refusals" not in named:  # what a run compiles has nodes left out, and they stand in the first one's report
            partitions.append(self)

    monkeypatch.setattr(CpuPartition, "__init__", noted)
    return partitions


@pytest.fixture
def agrees(partitions: list[CpuPartition]) -> Agrees:
    """Return a check of a graph with input ``x`` and output ``y``, for images of several sizes."""

    def check(
        nodes: Sequence[NodeProto], constants: Mapping[str, np.ndarray], shape: Sequence[int | str],
        *sizes: tuple[int, ...], opset: int = 20,
    ) -> None:  # fmt: skip
        info = helper.make_tensor_value_info
        initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
        ins, outs = [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(list(nodes), "images", ins, outs, initializer=initializers)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        reference = ort.InferenceSession(model, options, providers=["ReferenceExecutionProvider"])
        partitions.clear()
        compiled = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        assert partitions, "nothing went to the CPU provider"
        refusals = {node.op_type: reason for each in partitions for node, reason in each.refusals.items()}
        assert not refusals, f"not compiled: {refusals}"
        assert sum(len(each.native_programs) for each in partitions) == 1, "not one program"
        for number, size in enumerate(sizes):
            feeds = {"x": numbers(number, *size)}
            (found,), (expected,) = compiled.run(None, feeds), reference.run(None, feeds)
            assert found.shape == expected.shape, size
            comparison = compare(found, expected, "approximate")
            assert comparison.passes, f"{size}: {comparison}"

    return check
