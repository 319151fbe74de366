"""Products with matrices that indices choose from a constant stack read them where they lie; float64 is their truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from run_levels import run_at_level

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.errors import InvalidArgument

SLOTS = (5, 1, 0, 70)


@dataclass(frozen=True)
class Chosen:
    """A stack of matrices, and how a model chooses and multiplies them."""

    count: int = 6
    outputs: int = 33
    depth: int = 50
    is_left: bool = True
    by_tuples: bool = False
    is_transposed: bool = False
    alpha: float = 1.0
    index_type: int = TensorProto.INT64
    per_token: int = 0
    vectors: int = 1
    is_returned: bool = False

    def stack(self) -> np.ndarray:
        """Return the matrices as they are stored."""
        shape = (self.count, self.outputs, self.depth)
        if not self.is_left and not self.is_transposed:
            shape = (self.count, self.depth, self.outputs)
        return np.random.default_rng(3).standard_normal(shape).astype(np.float32)

    def model(self) -> ModelProto:
        """Return the model: ids and rows (slots, vectors, depth) give (slots, vectors, outputs)."""
        slots: list[str | int] = ["S", self.per_token] if self.per_token else ["S"]
        nodes, ids = [], "ids"
        if self.by_tuples:
            nodes.append(helper.make_node("Unsqueeze", ["ids", "last"], ["tuples"]))
            ids = "tuples"
        gather = "GatherND" if self.by_tuples else "Gather"
        nodes.append(helper.make_node(gather, ["stack", ids], ["chosen"]))
        matrices = "chosen"
        if self.is_transposed and self.alpha == 1.0:
            rank = len(slots) + 2
            order = [*range(rank - 2), rank - 1, rank - 2]
            nodes.append(helper.make_node("Transpose", [matrices], ["turned"], perm=order))
            matrices = "turned"
        if self.is_left:
            rank = len(slots) + 2
            order = [*range(rank - 2), rank - 1, rank - 2]
            nodes.append(helper.make_node("Transpose", ["x"], ["columns"], perm=order))
            nodes.append(helper.make_node("MatMul", [matrices, "columns"], ["summed"]))
            nodes.append(helper.make_node("Transpose", ["summed"], ["y"], perm=order))
        elif self.alpha != 1.0:
            named = {"alpha": self.alpha, "transB": int(self.is_transposed)}
            nodes.append(helper.make_node("FusedMatMul", ["x", matrices], ["y"], domain="com.microsoft", **named))
        else:
            nodes.append(helper.make_node("MatMul", ["x", matrices], ["y"]))
        inputs = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [*slots[:1], *[1] * (len(slots) - 1), self.vectors,
                                                                   self.depth]),
            helper.make_tensor_value_info("ids", self.index_type, slots),
        ]  # fmt: skip
        results = ["y", "chosen"] if self.is_returned else ["y"]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
        held = [numpy_helper.from_array(self.stack(), "stack"), numpy_helper.from_array(np.array([-1]), "last")]
        graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=held)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self, slots: int) -> dict[str, np.ndarray]:
        """Return rows, and indices that count from either end."""
        generator, middle = np.random.default_rng(slots), (self.per_token,) if self.per_token else ()
        shape = (slots, *[1] * len(middle), self.vectors, self.depth)
        ids = generator.integers(-self.count, self.count, (slots, *middle))
        dtype = helper.tensor_dtype_to_np_dtype(self.index_type)
        return {"x": generator.standard_normal(shape).astype(np.float32), "ids": ids.astype(dtype)}

    def truth(self, feeds: dict[str, np.ndarray]) -> np.ndarray:
        """Return each slot's product in float64."""
        stack = self.stack().astype(np.float64)
        if not self.is_left and not self.is_transposed:
            stack = stack.swapaxes(1, 2)
        found: np.ndarray = np.einsum("...ok,...vk->...vo", stack[feeds["ids"]], feeds["x"].astype(np.float64))
        return found * self.alpha


CASES = {
    "matrices on the left": Chosen(),
    "matrices on the right": Chosen(is_left=False),
    "matrices turned": Chosen(is_left=False, is_transposed=True),
    "a product that turns and scales": Chosen(is_left=False, is_transposed=True, alpha=0.5),
    "a product that scales": Chosen(is_left=False, alpha=-2.0),
    "tuples of one index": Chosen(by_tuples=True),
    "narrow indices": Chosen(index_type=TensorProto.INT32),
    "several matrices of a token": Chosen(per_token=3),
    "several matrices of a token, on the right": Chosen(per_token=2, is_left=False, by_tuples=True),
    "one matrix": Chosen(count=1),
    "more matrices than vectors": Chosen(count=300, outputs=16, depth=64),
    "two vectors for a matrix": Chosen(vectors=2, is_left=False),
    "small matrices": Chosen(outputs=3, depth=3),
    "matrices that are a result, too": Chosen(is_returned=True),
}


def session(case: Chosen, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(case.model().SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(case: Chosen, threads: int = 2) -> None:
    compiled = session(case, threads)
    for slots in SLOTS:
        feeds = case.feeds(slots)
        found, expected = compiled.run(None, feeds), case.truth(feeds)
        assert found[0].shape == expected.shape
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=5e-5)
        if case.is_returned:
            np.testing.assert_array_equal(found[1], case.stack()[feeds["ids"]])


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_each_vector_meets_its_matrix(case: str, threads: int) -> None:
    check(CASES[case], threads)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_beside_the_matrices_is_touched(case: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check(CASES[case])


@pytest.mark.parametrize("index", [6, -7, 2**40])
@pytest.mark.parametrize("case", ["matrices on the left", "tuples of one index"])
def test_a_matrix_that_there_is_not_is_refused(case: str, index: int) -> None:
    compiled, feeds = session(CASES[case], 2), CASES[case].feeds(5)
    feeds["ids"][3] = index
    with pytest.raises(InvalidArgument, match="ind"):
        compiled.run(None, feeds)
    feeds["ids"][3] = 0
    np.testing.assert_allclose(compiled.run(None, feeds)[0], CASES[case].truth(feeds), rtol=0, atol=5e-5)


@pytest.mark.parametrize("case", ["matrices on the left", "matrices turned", "tuples of one index", "small matrices"])
def test_large_matrices_are_not_copied(case: str, partitions: list[CpuPartition]) -> None:
    session(CASES[case], 1)
    kernels = [step.kernel for made in partitions for program in made.native_programs for step in program.steps]
    assert any(name.startswith("product_experts") for name in kernels) == (case != "small matrices"), kernels


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("axis", [3, -1, 1])
def test_other_axes_are_copied(axis: int) -> None:
    table = np.random.default_rng(1).standard_normal((2, 40, 40, 5)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["t", "ids"], ["y"], axis=axis)]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["S"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [ids], [y], initializer=[numpy_helper.from_array(table, "t")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    chosen = np.array([4, -1, 0])
    np.testing.assert_array_equal(compiled.run(None, {"ids": chosen})[0], np.take(table, chosen, axis))


def test_one_choice_for_two_products_is_no_copy(partitions: list[CpuPartition]) -> None:
    case = CASES["matrices on the right"]
    graph = case.model().graph
    graph.node.extend(
        [helper.make_node("Neg", ["x"], ["minus"]), helper.make_node("MatMul", ["minus", "chosen"], ["z"])]
    )
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kernels = [step.kernel for made in partitions for program in made.native_programs for step in program.steps]
    assert sum(name.startswith("product_experts") for name in kernels) == 2, kernels
    feeds = case.feeds(9)
    y, z = compiled.run(None, feeds)
    np.testing.assert_allclose(y, case.truth(feeds), rtol=0, atol=5e-5)
    np.testing.assert_array_equal(z, -y)


def test_layers_with_the_same_indices_sort_them_once(partitions: list[CpuPartition]) -> None:
    graph = CASES["matrices on the right"].model().graph
    graph.initializer.append(numpy_helper.from_array(-CASES["matrices on the right"].stack(), "other"))
    again = [helper.make_node("Gather", ["other", "ids"], ["more"]), helper.make_node("MatMul", ["x", "more"], ["z"])]
    graph.node.extend(again)
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kernels = [step.kernel for made in partitions for program in made.native_programs for step in program.steps]
    assert sum(name.startswith("experts_sorted") for name in kernels) == 1, kernels


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
def test_code_of_each_level_multiplies_as_well(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in CASES.values():
        check(each)
