"""Long formulas for short rows, parts of a Concat, are computed as one long row; float64 is their truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition

WIDTHS = (1, 2, 3, 5, 7, 12, 16, 20, 33)


def encoding(width: int, op_type: str, dims: Sequence[str | int] = ("N",)) -> ModelProto:
    """Return rows of ``width``, and functions of multiples of them, side by side."""
    names = ["x"]
    nodes = []
    for number in range(4):
        nodes.append(helper.make_node("Mul", ["x", f"c{number}"], [f"m{number}"]))
        nodes.append(helper.make_node(op_type, [f"m{number}"], [f"s{number}"]))
        names.append(f"s{number}")
    nodes.append(helper.make_node("Concat", names, ["y"], axis=-1))
    held = [numpy_helper.from_array(np.float32(2.0**number), f"c{number}") for number in range(4)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dims, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def session(model: ModelProto, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("memory", ["", "end", "begin"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", WIDTHS)
def test_encodings_of_any_width_are_right(
    width: int, threads: int, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if memory:
        monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    compiled = session(encoding(width, "Sin"), threads)
    for rows in (17, 1, 0, 300):
        x = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)
        wide = x.astype(np.float64)
        expected = np.concatenate([wide, *(np.sin(wide * 2.0**number) for number in range(4))], axis=-1)
        np.testing.assert_allclose(compiled.run(None, {"x": x})[0], expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize(
    ("width", "op_type", "copies"),
    [(1, "Sin", 5), (3, "Sin", 5), (3, "Relu", 1), (64, "Sin", 1), (1, "Sigmoid", 5)],
)
def test_long_formulas_alone_are_computed_apart(
    width: int, op_type: str, copies: int, partitions: list[CpuPartition]
) -> None:
    """On every vector unit: rows of 1 and 3 leave most of any vector empty, rows of 64 nothing."""
    session(encoding(width, op_type), 1)
    (program,) = partitions[-1].native_programs
    assert len(program.steps) == copies + 4, [step.kernel for step in program.steps]
