"""Caches whose rows a fed or computed number tells: the attention is compiled, its sizes are read from the number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from test_groups import agrees, model_of, run, session

import ort_core as ort
from ort_core.cpu.partition.counted_rows import rows_of
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.tolerances import compare

FLOAT, HALF, INT32, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64
HEADS, GROUPS, SIZE = 4, 2, 8
NAMES = ("q", "k", "v", "pk", "pv")
Feeds = dict[str, np.ndarray]


def attention(prefix: str = "", *, total: str = "total", past: bool = True, **attributes: object) -> NodeProto:
    """Return a layer's attention; ``prefix`` begins the names of what is its own."""
    names = [*(prefix + name for name in ("q", "k", "v")), *(prefix + name if past else "" for name in ("pk", "pv"))]
    results = [prefix + name for name in ("y", "nk", "nv")]
    return helper.make_node(
        "GroupQueryAttention", [*names, "lengths", total], results, domain="com.microsoft", num_heads=HEADS,
        kv_num_heads=GROUPS, **attributes,
    )  # fmt: skip


def declared(dtype: int = FLOAT, *, past: bool = True, prefix: str = "") -> dict[str, tuple[int, Sequence[int | str]]]:
    found: dict[str, tuple[int, Sequence[int | str]]] = {
        f"{prefix}q": (dtype, ["B", "S", HEADS * SIZE]), f"{prefix}k": (dtype, ["B", "S", GROUPS * SIZE]),
        f"{prefix}v": (dtype, ["B", "S", GROUPS * SIZE]), "lengths": (INT32, ["B"]),
    }  # fmt: skip
    if past:
        found |= {f"{prefix}{name}": (dtype, ["B", GROUPS, "P", SIZE]) for name in ("pk", "pv")}
    return found


def alone(dtype: int = FLOAT, *, past: bool = True, sizes: Sequence[int] = (), **attributes: object) -> ModelProto:
    inputs = {**declared(dtype, past=past), "total": (INT32, sizes)}
    return model_of([attention(past=past, **attributes)], inputs, dict.fromkeys(["y", "nk", "nv"], dtype))


def fed(seed: int, batch: int, new: int, before: int | None, total: int, prefix: str = "", **more: object) -> Feeds:
    """Return operands: ``new`` tokens of each text behind others, of which caches have ``before`` rows."""
    rng = np.random.default_rng(seed)
    shapes = {"q": (batch, new, HEADS * SIZE), "k": (batch, new, GROUPS * SIZE), "v": (batch, new, GROUPS * SIZE)}
    if before is not None:
        shapes |= dict.fromkeys(("pk", "pv"), (batch, GROUPS, before, SIZE))
    dtype = more.get("dtype", np.float32)
    found = {prefix + name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}  # type: ignore[arg-type]  # a type of numpy's
    lengths = more.get("lengths", [total - 1] * batch)
    number = np.array(total, np.int32).reshape(more.get("sizes", ()))  # type: ignore[call-overload]  # a shape
    return {**found, "lengths": np.array(lengths, np.int32), "total": number}


def is_compiled(partition: CpuPartition, programs: int = 1) -> bool:
    attentions = [node for node in partition.refusals if node.op_type == "GroupQueryAttention"]
    return not attentions and len(partition.native_programs) == programs


def beside_onnxruntime(model: ModelProto, *feeds: Feeds) -> None:
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for each in feeds:
        for mine, other in zip(ours.run(None, each), theirs.run(None, each), strict=True):
            assert mine.shape == other.shape
            assert compare(mine, other, "approximate").passes


@pytest.mark.parametrize("sizes", [(), (1,)])
def test_a_first_prompt_without_a_past_is_the_references(
    sizes: tuple[int, ...], partitions: list[CpuPartition]
) -> None:
    model = alone(past=False, sizes=sizes)
    feeds = [fed(n, b, s, None, s, sizes=sizes) for n, (b, s) in enumerate([(1, 5), (2, 1), (3, 17), (1, 40), (1, 5)])]
    feeds.append(fed(9, 2, 6, None, 6, sizes=sizes, lengths=[5, 2]))
    agrees(model, *feeds)
    assert is_compiled(partitions[-1])


@pytest.mark.parametrize("attributes", [{}, {"local_window_size": 3}, {"softcap": 2.0}, {"causal": 0}], ids=str)
def test_caches_of_any_room_are_the_references(attributes: dict[str, object], partitions: list[CpuPartition]) -> None:
    """They grow to the total where they have fewer rows, and stay where they have as many."""
    cases = [(1, 4, 0, 4), (1, 1, 4, 5), (2, 3, 4, 7), (1, 1, 16, 5), (2, 2, 16, 16), (1, 5, 16, 9), (1, 1, 4, 5)]
    agrees(alone(**attributes), *[fed(n, *case) for n, case in enumerate(cases)])
    assert is_compiled(partitions[-1])


def test_caches_of_halves_are_the_references(partitions: list[CpuPartition]) -> None:
    agrees(
        alone(HALF), *[fed(n, 1, s, p, p + s, dtype=np.float16) for n, (s, p) in enumerate([(4, 0), (1, 4), (3, 5)])]
    )
    assert len(partitions[-1].native_programs) <= 1  # none where the processor does not convert them


def test_a_loop_over_growing_caches_is_onnxruntimes() -> None:
    model = alone()
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    caches = {name: np.zeros((1, GROUPS, 0, SIZE), np.float32) for name in ("pk", "pv")}
    for number in range(12):
        new = 5 if number in (0, 6) else 1
        each = {**fed(number, 1, new, None, caches["pk"].shape[2] + new), **caches}
        expected, found = theirs.run(None, each), ours.run(None, each)
        for mine, other in zip(found, expected, strict=True):
            assert compare(mine, other, "approximate").passes
        caches = dict(zip(("pk", "pv"), found[1:], strict=True))
        assert caches["pk"].shape[2] == int(each["total"])


def test_equal_sizes_come_again_and_again() -> None:
    model = alone()
    beside_onnxruntime(model, *[fed(n, 1, 1, 6, 7) for n in range(6)], fed(8, 1, 1, 6, 6), fed(9, 1, 1, 6, 7))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_several_threads_share_the_work(threads: int) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    model = alone(do_rotary=0)
    ours = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    reference = session(model, "ReferenceExecutionProvider")
    for each in (fed(0, 3, 129, 0, 129), fed(1, 3, 1, 129, 130)):
        for mine, other in zip(ours.run(None, each), run(reference, each), strict=True):
            assert compare(mine, other, "approximate").passes


def layers(total: Sequence[NodeProto], *, names_rows: bool = False) -> ModelProto:
    """Two layers, the second of which reads what the first gives; ``total`` are nodes that make the number."""
    second = helper.make_node(
        "GroupQueryAttention", ["h", "k", "v", "pk", "pv", "lengths", "total"], ["z", "nk2", "nv2"],
        domain="com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS,
    )  # fmt: skip
    inputs = {**declared(), "total" if not total else "mask": (INT32, [] if not total else ["B", "T"])}
    rest = [helper.make_node("Tanh", ["y"], ["h"]), second, helper.make_node("Tanh", ["nk2"], ["keys"])]
    model = model_of([*total, attention(), *rest], inputs, dict.fromkeys(["z", "nk", "nv", "keys"], FLOAT),
                     {"one": np.array(1, np.int32)})  # fmt: skip
    if names_rows:
        for each in model.graph.output:
            if each.name in ("nk", "nv"):
                shape = helper.make_tensor_type_proto(FLOAT, ["B", GROUPS, "rows", SIZE])
                each.type.CopyFrom(shape)
    return model


@pytest.mark.parametrize("names_rows", [False, True], ids=["unnamed", "named"])
def test_layers_that_share_a_fed_number_are_one_program(names_rows: bool, partitions: list[CpuPartition]) -> None:
    model = layers([], names_rows=names_rows)
    agrees(model, *[fed(n, 2, s, p, p + s) for n, (s, p) in enumerate([(4, 0), (1, 4), (3, 5), (1, 4)])])
    assert is_compiled(partitions[-1])


def test_a_number_that_data_make_is_computed_first(partitions: list[CpuPartition]) -> None:
    """As graphs for captured runs have it: the longest text of a mask."""
    total = [
        helper.make_node("ReduceSum", ["mask"], ["counts"], keepdims=0, noop_with_empty_axes=0),
        helper.make_node("ReduceMax", ["counts"], ["total"], keepdims=0),
    ]
    total[0].input.append("one")  # of axis 1
    model = layers(total)
    model.graph.initializer[0].CopyFrom(onnx_axis())
    feeds = []
    for number, (new, before, width) in enumerate([(4, 0, 4), (1, 4, 9), (3, 5, 8)]):
        each = fed(number, 2, new, before, before + new)
        del each["total"]
        each["mask"] = np.broadcast_to((np.arange(width) < before + new).astype(np.int32), (2, width)).copy()
        feeds.append(each)
    agrees(model, *feeds)
    assert is_compiled(partitions[-1], programs=len(partitions[-1].native_programs))
    reasons = [why for node, why in partitions[-1].refusals.items() if node.op_type == "ReduceMax"]
    assert reasons == ["how many rows a cache has is read from its result"]


def onnx_axis() -> TensorProto:
    return helper.make_tensor("one", INT64, [1], [1])


@pytest.mark.parametrize(
    ("total", "words"), [(0, "must be positive"), (-3, "must be positive"), (9, "must equal"), (3, "out of range")]
)
def test_numbers_that_do_not_fit_are_refused_as_by_the_reference(total: int, words: str) -> None:
    each = fed(0, 1, 2, 4, 6)
    each["total"] = np.array(total, np.int32)
    if total == 3:
        each["lengths"] = np.array([7], np.int32)
    compiled = session(alone(), "CPUExecutionProvider")
    with pytest.raises(Exception, match=words):
        compiled.run(None, each)
    good = fed(1, 1, 2, 4, 6)
    reference = session(alone(), "ReferenceExecutionProvider")
    for mine, other in zip(compiled.run(None, good), reference.run(None, good), strict=True):
        assert compare(mine, other, "approximate").passes


def test_what_is_no_number_of_rows_is_none() -> None:
    assert rows_of(np.array(-1, np.int32)) is None
    assert rows_of(np.array([1, 2], np.int32)) is None
    assert rows_of(np.array(2.0)) is None
    assert rows_of(None) is None
    found = rows_of(np.array([3], np.int32))
    assert found is not None
    assert found.shape == (3, 0)


def test_a_saved_and_a_recalled_session_give_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = layers([]).SerializeToString()
    each = fed(0, 2, 3, 5, 8)
    first = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, each)
    again = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, each)
    for mine, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_bound_caches_grow_in_memory_of_their_own() -> None:
    model = alone()
    ours = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for number in range(4):
        each = fed(number, 1, 1, 6, 5 + number % 2)
        expected = session(model, "ReferenceExecutionProvider").run(None, each)
        binding = ours.io_binding()
        for name, array in each.items():
            binding.bind_cpu_input(name, array)
        for name in ("y", "nk", "nv"):
            binding.bind_output(name)
        ours.run_with_iobinding(binding)
        for mine, other in zip(binding.copy_outputs_to_cpu(), expected, strict=True):
            assert compare(mine, other, "approximate").passes


def test_equal_layers_between_kernels_count_rows(partitions: list[CpuPartition]) -> None:
    layers = 6
    nodes, inputs, names = [], {"total": (INT32, ())}, []
    for i in range(layers):
        own, before = f"layer{i}.", f"layer{i - 1}."
        inputs |= declared(prefix=own)
        nodes.append(attention(own))
        names += [own + name for name in ("y", "nk", "nv")]
        if i:
            nodes[-1].input[0] = own + "scaled"
            nodes[-1:] = [
                helper.make_node("Transpose", [before + "y"], [own + "turned"], perm=[0, 2, 1]),
                helper.make_node("MatMul", [before + "y", own + "turned"], [own + "square"]),
                helper.make_node("Det", [own + "square"], [own + "kernel"]),
                helper.make_node("ReduceMean", [own + "kernel"], [own + "mean"], keepdims=0),
                helper.make_node("Sigmoid", [own + "mean"], [own + "scale"]),
                helper.make_node("Mul", [own + "q", own + "scale"], [own + "scaled"]), nodes[-1],
            ]  # fmt: skip
    model = model_of(nodes, inputs, dict.fromkeys(names, FLOAT))
    feeds = []
    for new, before in ((4, 0), (1, 4), (3, 9)):
        feeds.append({})
        for i in range(layers):
            feeds[-1] |= fed(i, 1, new, before, before + new, prefix=f"layer{i}.")
    agrees(model, *feeds)
    beside_onnxruntime(model, *feeds)
    assert is_compiled(partitions[0], layers)
