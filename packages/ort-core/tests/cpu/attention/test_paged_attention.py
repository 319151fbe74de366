"""Compiled attention over caches of blocks, beside the reference kernel: long sequences, odd blocks, guards."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from run_levels import run_at_level

import ort_core as ort
from ort_core.cpu.partition import partition as cpu_partition

Array = np.ndarray
KINDS = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.int8: TensorProto.INT8,
         ml_dtypes.bfloat16: TensorProto.BFLOAT16}  # fmt: skip
STEPS = {
    "a token each": ([1, 1, 1, 1], [300, 0, 255, 511]),
    "a prompt": ([280], [0]),
    "a part of one": ([70], [250]),
    "both": ([1, 40, 0, 1, 3], [600, 250, 9, 256, 2]),
}
SIZES = {  # of heads: how many, of keys, elements, rows of a block
    "blocks of 16": (6, 2, 64, 16), "odd blocks": (3, 1, 20, 7), "large blocks": (8, 8, 16, 300),
    "many heads": (18, 2, 8, 24),
}  # fmt: skip
QUANTIZED = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}


def decoder(heads: int, groups: int, size: int, dtype: type, cache: type, **attributes: object) -> bytes:
    """Return two nodes that are told the same; the second one attends with what the first one gave."""
    kind, stored = KINDS[dtype], KINDS[cache]
    whole, part, blocks = ["T", heads * size], ["T", groups * size], ["N", "R", groups, size]
    shapes = {"query": (kind, whole), "key": (kind, part), "value": (kind, part)}
    shapes |= {f"{name}{layer}": (stored, blocks) for layer in range(2) for name in ("keys", "values")}
    shapes |= {"ends": (TensorProto.INT32, ["B1"]), "past": (TensorProto.INT32, ["B"])}
    shapes |= {"table": (TensorProto.INT32, ["B", "M"])}
    shapes |= {name: (kind, ["P", size // 2]) for name in ("cos", "sin")}
    scales = ["k_scale", "v_scale"] if cache is np.int8 else []
    shapes |= {name: (TensorProto.FLOAT, [groups, 1, size]) for name in scales}
    nodes = []
    for layer, query in enumerate(("query", "y0")):
        told = ["ends", "past", "table", "cos", "sin", *([""] * 4 if scales else []), *scales]
        inputs = [query, "key", "value", f"keys{layer}", f"values{layer}", *told]
        outputs = [f"y{layer}", f"new_keys{layer}", f"new_values{layer}"]
        nodes.append(helper.make_node(
            "PagedAttention", inputs, outputs, domain="com.microsoft", num_heads=heads, kv_num_heads=groups,
            do_rotary=1, **attributes,
        ))  # fmt: skip
    given = [helper.make_tensor_value_info(name, *each) for name, each in shapes.items()]
    found = {"y1": (kind, whole)}
    found |= {f"new_{name}{layer}": (stored, blocks) for layer in range(2) for name in ("keys", "values")}
    made = [helper.make_tensor_value_info(name, *each) for name, each in found.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "decoder", given, made)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def feeds(
    steps: tuple[list[int], list[int]], sizes: tuple[int, int, int, int], dtype: type, cache: type
) -> dict[str, Array]:
    """Return a run's inputs; blocks that belong to nobody hold no numbers."""
    random = np.random.default_rng(3)
    fresh, past = steps
    heads, groups, size, rows = sizes
    used = [-(-(a + b) // rows) for a, b in zip(fresh, past, strict=True)]
    drawn = iter(random.permutation(sum(used) + 1).tolist())
    table = np.full((len(fresh), max(used) + 1), -1, np.int32)
    for row, count in zip(table, used, strict=True):
        row[:count] = [next(drawn) for _ in range(count)]
    shape = (sum(used) + 1, rows, groups, size)
    angles = np.outer(np.arange(800), 10.0 ** -np.arange(size // 2))
    found = {"ends": np.cumsum([0, *fresh]).astype(np.int32), "past": np.array(past, np.int32), "table": table}
    found |= {name: turn(angles).astype(dtype) for name, turn in (("cos", np.cos), ("sin", np.sin))}
    for name, columns in (("query", heads * size), ("key", groups * size), ("value", groups * size)):
        found[name] = random.standard_normal((sum(fresh), columns)).astype(dtype)
    for name in ("keys0", "values0", "keys1", "values1"):
        if cache is np.int8:
            found[name] = random.integers(-99, 100, shape, np.int8)
        else:
            found[name] = random.standard_normal(shape).astype(cache)
            found[name][next(iter(set(range(shape[0])) - set(table.ravel().tolist())))] = np.nan
    if cache is np.int8:
        found |= {
            name: random.uniform(0.01, 0.03, (groups, 1, size)).astype(np.float32) for name in ("k_scale", "v_scale")
        }
    return found


def differences(content: bytes, given: dict[str, Array], tolerance: float, precision: str = "float32") -> None:
    """Require equal results of the compiled program and of the reference kernel, twice."""
    expected = ort.InferenceSession(content, providers=["ReferenceExecutionProvider"]).run(None, given)
    session = ort.InferenceSession(content, providers=[("CPUExecutionProvider", {"precision": precision})])
    for _ in range(2):
        found = session.run(None, given)
        np.testing.assert_allclose(found[0].astype(float), expected[0].astype(float), rtol=tolerance, atol=tolerance)
        for got, wanted in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(got, wanted)


def check(steps: str, sizes: str, dtype: type = np.float32, cache: type | None = None, **attributes: object) -> None:
    stored = cache or dtype
    more = QUANTIZED if stored is np.int8 else {}
    content = decoder(*SIZES[sizes][:3], dtype, stored, **attributes, **more)
    differences(content, feeds(STEPS[steps], SIZES[sizes], dtype, stored), 1e-4 if dtype is np.float32 else 5e-3)


def is_native(partitions: Sequence[cpu_partition.CpuPartition]) -> bool:
    return all(not each.refusals and len(each.native_programs) == 1 for each in partitions)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("steps", STEPS)
def test_both_layers_are_one_program_with_the_references_results(
    steps: str, sizes: str, partitions: list[cpu_partition.CpuPartition]
) -> None:
    check(steps, sizes)
    assert is_native(partitions)
    kernels = [step.kernel.split("_")[1] for step in partitions[-1].native_programs[0].steps]
    assert kernels.count("places") == 1, "where tokens lie is found once for both layers"


@pytest.mark.parametrize(
    ("dtype", "cache", "attributes"),
    [
        (np.float16, None, {}), (np.float32, np.int8, {}),
        (np.float32, None, {"local_window_size": 270, "softcap": 5.0}), (np.float32, None, {"is_causal": 0}),
    ],
    ids=["float16", "int8", "a window and a cap", "not causal"],
)  # fmt: skip
def test_other_types_and_masks_are_the_references(
    dtype: type, cache: type | None, attributes: dict[str, object], partitions: list[cpu_partition.CpuPartition]
) -> None:
    check("both", "blocks of 16", dtype, cache, **attributes)
    assert is_native(partitions)


@pytest.mark.parametrize(
    ("steps", "sizes", "dtype", "cache"),
    [
        *((steps, "blocks of 16", np.float32, None) for steps in STEPS),
        *(("both", sizes, np.float32, None) for sizes in SIZES if sizes != "blocks of 16"),
        ("both", "odd blocks", np.float16, None), ("both", "blocks of 16", np.float32, np.int8),
    ],
)  # fmt: skip
def test_products_of_bfloat16_give_the_references_results_within_their_roundings(
    steps: str, sizes: str, dtype: type, cache: type | None
) -> None:
    stored = cache or dtype
    more = QUANTIZED if stored is np.int8 else {}
    content = decoder(*SIZES[sizes][:3], dtype, stored, **more)
    differences(content, feeds(STEPS[steps], SIZES[sizes], dtype, stored), 0.05, "bfloat16")


@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize(("sizes", "cache"), [("odd blocks", None), ("blocks of 16", np.int8)], ids=["float", "int8"])
def test_nothing_beside_the_caches_is_touched(
    sizes: str, cache: type | None, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check("both", sizes, np.float32, cache)


def test_threads_share_what_there_is_without_another_result() -> None:
    content, found = decoder(6, 2, 64, np.float32, np.float32), []
    given = feeds(STEPS["both"], SIZES["blocks of 16"], np.float32, np.float32)
    for threads in (1, 2, 5):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        found.append(ort.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, given)[0])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
def test_code_of_each_level_gives_the_references_results(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in SIZES:
        check("both", each)
