"""MatMulNBits gives a row the same numbers beside any number of others, in code of each level.

With accuracy level 4 rows are bytes, with 2 two bytes a number, which lose a 254th of that.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from run_levels import run_at_level

import ort_core as ort
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.quantized.nbits_byte_tile import multiplies_bytes

CASES = {  # bits, block, columns, depth, zero points
    "blocks of 32": (4, 32, 75, 96, True),
    "symmetric": (4, 32, 33, 64, False),
    "odd sizes": (4, 16, 17, 77, True),
    "long blocks": (4, 128, 40, 300, False),
    "8 bits": (8, 64, 48, 100, True),
    "8 bits, symmetric": (8, 32, 16, 32, False),
}
STEPS = {4: 127, 2: 127 * 254}  # of a block's largest number
COUNTS = (1, 2, 5, 8, 15, 16, 17, 31, 33, 64, 201)


def product(case: str, accuracy: int) -> tuple[bytes, np.ndarray]:
    """Return a model of one product, and its weights in float64."""
    bits, block, columns, depth, has_zeros = CASES[case]
    random, blocks = np.random.default_rng(len(case)), -(-depth // block)
    levels = random.integers(0, 1 << bits, (columns, blocks * block)).astype(np.uint8)
    packed = levels if bits == 8 else levels[:, ::2] | levels[:, 1::2] << 4
    scales = random.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    zeros = random.integers(0, 1 << bits, (columns, blocks)).astype(np.float32)
    tensors = [("w", packed.reshape(columns, blocks, -1)), ("s", scales.ravel())]
    tensors += [("z", zeros.ravel())] if has_zeros else []
    node = helper.make_node(
        "MatMulNBits", ["x", *(name for name, _ in tensors)], ["y"], domain="com.microsoft", K=depth, N=columns,
        bits=bits, block_size=block, accuracy_level=accuracy,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", columns])],
        [numpy_helper.from_array(value, name) for name, value in tensors],
    )  # fmt: skip
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    middle = np.repeat(zeros, block, axis=1) if has_zeros else 2.0 ** (bits - 1)
    real = (levels - middle) * np.repeat(scales.astype(np.float64), block, axis=1)
    return bytes(model.SerializeToString()), real[:, :depth].T


def check(case: str, accuracy: int, threads: int = 2) -> None:
    """Require equal rows however many there are, and numbers within what rounding the left side to bytes allows."""
    bits, block, _, depth, _ = CASES[case]
    content, real = product(case, accuracy)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).standard_normal((max(COUNTS), depth)).astype(np.float32)
    (whole,) = session.run(None, {"x": x})
    largest = np.stack([np.abs(part).max(axis=1) for part in np.split(x, range(block, depth, block), axis=1)], axis=1)
    steps = np.repeat(largest, block, axis=1)[:, :depth] / STEPS[accuracy]
    summed = 1e-4 if accuracy == 4 else 1e-6
    bound = steps / 2 @ np.abs(real) + summed * (np.abs(x) @ np.abs(real))
    assert (np.abs(whole - x.astype(np.float64) @ real) <= bound).all()
    if not multiplies_bytes(bits, host_target()):
        return
    for count in COUNTS:
        (found,) = session.run(None, {"x": x[:count]})
        assert found.tobytes() == whole[:count].tobytes(), f"{count} rows"
        (behind,) = session.run(None, {"x": x[-count:]})
        assert behind.tobytes() == whole[-count:].tobytes(), f"the last {count} rows"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("accuracy", STEPS)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_row_gets_the_same_numbers_beside_any_others(case: str, accuracy: int, threads: int) -> None:
    check(case, accuracy, threads)


@pytest.mark.parametrize("accuracy", STEPS)
def test_blocks_with_infinities_and_without_numbers_do_not_change_others(accuracy: int) -> None:
    content, _ = product("blocks of 32", accuracy)
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(4).standard_normal((9, 96)).astype(np.float32)
    (expected,) = session.run(None, {"x": x})
    wild = x.copy()
    wild[2, 40], wild[3, 70], wild[4], wild[5] = -np.inf, np.nan, 0.0, 1e-42
    (found,) = session.run(None, {"x": wild})
    others = [0, 1, 6, 7, 8]
    assert found[others].tobytes() == expected[others].tobytes()
    assert not np.isfinite(found[[2, 3]]).any()
    assert np.isfinite(found[4:6]).all()
    assert not found[4].any()


@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("accuracy", STEPS)
@pytest.mark.parametrize("case", ["odd sizes", "8 bits", "long blocks"])
def test_nothing_beside_the_rows_is_touched(
    case: str, accuracy: int, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check(case, accuracy)


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2", "x86-64-v4,+avx512vnni"])
def test_code_of_each_level_gives_a_row_the_same(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in CASES:
        for level in STEPS:
            check(each, level)
