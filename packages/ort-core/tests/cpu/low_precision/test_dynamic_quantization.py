"""DynamicQuantizeLinear: the scale, the zero point and the bytes are those of the formula in float32, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import BYTE_TARGETS
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.quantized.dynamic_range import BLOCK, block_ranges_kernel, dynamic_bytes_kernel, grid_kernel
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.threads.pool import ThreadPool

COUNTS = (0, 1, 3, 15, 16, 17, 63, 64, 65, 255, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77)
MARK = 0x55


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.float32, np.uint8]:
    """Return what the specification says, computed in float32."""
    low, high = np.minimum(x.min(initial=0), np.float32(0)), np.maximum(x.max(initial=0), np.float32(0))
    scale = np.float32(1) if low == high else np.float32(high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, np.float32(0), np.float32(255)))
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale, np.uint8(zero)


def numbers(kind: str, count: int) -> np.ndarray:
    random = np.random.default_rng(count)
    if kind == "halves":  # levels end on halves often: a scale of 1
        return np.concatenate([[0, 255], random.integers(0, 510, count) / 2])[:count].astype(np.float32)
    x = random.standard_normal(count).astype(np.float32)
    return {"both signs": x, "positive": np.abs(x) + 1, "negative": -np.abs(x) - 1, "nothing": x * 0}[kind]


class Kernels:
    """The three kernels, compiled for a target."""

    def __init__(self, machine: str, threads: int) -> None:
        target = BYTE_TARGETS[machine]()
        self._kernels = [make(target) for make in (block_ranges_kernel, grid_kernel, dynamic_bytes_kernel)]
        self._module = compile_module(module_text([function for _, function in self._kernels]), target)
        self._pool = ThreadPool(threads)

    def call(self, number: int, *words: int) -> None:
        table = np.array(words, np.int64)
        steps = np.array([self._module.address(self._kernels[number][0]), table.ctypes.data, 1, 0], np.int64)
        self._pool.run(int(steps.ctypes.data), 1)

    def ranges(self, x: np.ndarray) -> np.ndarray:
        found = np.full((2, -(-x.size // BLOCK)), np.nan, np.float32)
        self.call(0, x.ctypes.data, found.ctypes.data, found.ctypes.data + 4 * found.shape[1], x.size)
        return found

    def bytes(self, x: np.ndarray) -> tuple[np.ndarray, np.float32, np.uint8]:
        """Return bytes, scale and zero point, which the grid's kernel gives as well."""
        ranges, memory = self.ranges(x), np.full(x.size + 128, MARK, np.uint8)
        least, greatest = ranges.ctypes.data, ranges.ctypes.data + 4 * ranges.shape[1]
        grids = [(np.zeros(1, np.float32), np.zeros(1, np.uint8)) for _ in range(2)]
        joined = [(least, greatest, ranges.shape[1], scale.ctypes.data, zero.ctypes.data) for scale, zero in grids]
        self.call(1, *joined[0])
        self.call(2, *joined[1], x.ctypes.data, memory.ctypes.data + 64, x.size)
        assert (memory[:64] == MARK).all()
        assert (memory[64 + x.size :] == MARK).all()
        (scale, zero), (again, zero_again) = grids
        np.testing.assert_array_equal(scale, again)
        np.testing.assert_array_equal(zero, zero_again)
        return memory[64 : 64 + x.size], scale[0], zero[0]


@pytest.mark.parametrize("machine", BYTE_TARGETS)
@pytest.mark.parametrize("threads", [1, 3])
def test_kernels_compute_the_formula(machine: str, threads: int) -> None:
    kernels = Kernels(machine, threads)
    for count in COUNTS:
        for kind in ("both signs", "positive", "negative", "nothing", "halves"):
            x = numbers(kind, count)
            wanted, scale, zero = quantized(x)
            found = kernels.bytes(x)
            assert found[1:] == (scale, zero), (kind, count)
            np.testing.assert_array_equal(found[0], wanted, f"{kind} {count}")


@pytest.mark.parametrize("machine", BYTE_TARGETS)
def test_a_range_finds_extremes_and_nan_at_every_place(machine: str) -> None:
    kernels = Kernels(machine, 1)
    for count in (1, 5, 64, 77, 130):
        for place in range(count):
            for value in (np.nan, -np.nan, np.inf, -np.inf, 1e30, -1e30):
                x = numbers("both signs", count)
                x[place] = value
                least, greatest = kernels.ranges(x)[:, 0]
                if np.isnan(value):
                    assert np.isnan(least), (count, place)
                    assert np.isnan(greatest), (count, place)
                else:
                    assert (least, greatest) == (min(x.min(), 0), max(x.max(), 0)), (count, place)
    x = numbers("both signs", 2 * BLOCK)
    x[BLOCK + 3] = np.nan
    assert np.isnan(kernels.bytes(x)[1])


@pytest.mark.parametrize("returns", [("y",), ("y", "b"), ("y", "b", "s", "z")])
def test_bytes_are_written_with_their_grid(returns: tuple[str, ...], partitions: list[CpuPartition]) -> None:
    random = np.random.default_rng(4)
    weights = random.integers(-128, 128, (64, 48)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["b", "s", "z"]),
        helper.make_node("MatMulInteger", ["b", "w", "z"], ["y"]),
    ]
    types = {"y": TensorProto.INT32, "b": TensorProto.UINT8, "s": TensorProto.FLOAT, "z": TensorProto.UINT8}
    outputs = [helper.make_tensor_value_info(name, types[name], None) for name in returns]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 64))]
    graph = helper.make_graph(nodes, "g", given, outputs, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (program,) = partitions[-1].native_programs
    assert [step.kernel.split("_")[0] for step in program.steps] == ["block", "dynamic", "bytes"]
    for rows in (1, 31, 300):
        x = random.standard_normal((rows, 64)).astype(np.float32) * 3
        found = dict(zip(returns, session.run(None, {"x": x}), strict=True))
        levels, scale, zero = quantized(x)
        sums = (levels.astype(np.int32) - int(zero)) @ weights.astype(np.int32)
        wanted = {"y": sums, "b": levels, "s": scale, "z": zero}
        for name, value in found.items():
            np.testing.assert_array_equal(value, wanted[name], name)
