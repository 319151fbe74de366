"""What is made of one tensor of bytes and ends in bytes is looked up in a table, where it takes many instructions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from kernel_calls import TARGETS
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.byte_table import byte_table_kernel
from ort_core.cpu.fusions.byte_tables import MIN_COUNT
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.threads.pool import ThreadPool

KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
LOOKUPS: dict[str, Callable[[], Target]] = {
    **TARGETS,
    "without permutations of bytes": functools.partial(restricted_target, "avx512vbmi"),
    "SSE": functools.partial(restricted_target, "avx", "fma", "f16c"),
    "byte by byte": functools.partial(restricted_target, "avx", "fma", "f16c", "ssse3", "sse4"),
}
N = helper.make_node
_erf = np.vectorize(math.erf)


@pytest.mark.parametrize("machine", LOOKUPS)
@pytest.mark.parametrize("threads", [1, 3])
def test_each_byte_is_looked_up_and_nothing_else_is_written(machine: str, threads: int) -> None:
    target, random, pool = LOOKUPS[machine](), np.random.default_rng(5), ThreadPool(threads)
    name, function = byte_table_kernel(target)
    module = compile_module(module_text([function]), target)
    table = random.permutation(256).astype(np.uint8)
    for count in (0, 1, 7, 8, 63, 64, 65, 127, 200, 1000, 4097):
        x = random.integers(0, 256, count, np.uint8)
        x[:256] = np.arange(256)[:count]
        memory = np.full(count + 128, 0x55, np.uint8)
        words = np.array([x.ctypes.data, table.ctypes.data, memory.ctypes.data + 64, count], np.int64)
        steps = np.array([module.address(name), words.ctypes.data, 1, 0], np.int64)
        pool.run(int(steps.ctypes.data), 1)
        np.testing.assert_array_equal(memory[64 : 64 + count], table[x])
        assert (memory[:64] == 0x55).all()
        assert (memory[64 + count :] == 0x55).all()
    pool.close()


class Chain:
    """Nodes that go through bytes behind each operator, and the same in float64."""

    def __init__(self, dtype: type, x: np.ndarray) -> None:
        self.dtype, self.nodes, self.numbers = dtype, list[NodeProto](), dict[str, np.ndarray]()
        self.names = ["s", "z"]
        self.numbers |= {"s": np.float32(0.037), "z": dtype(131 if dtype is np.uint8 else 3)}
        self.nodes.append(N("DequantizeLinear", ["x", *self.names], ["v"]))
        self.reals = {"v": (x.astype(np.float64) - float(self.numbers["z"])) * np.float64(self.numbers["s"])}
        self.last = "v"
        self.bytes = x

    def constant(self, value: float, *shape: int) -> str:
        """Add a constant: as it is, or, without a shape, as one that is dequantized."""
        name = f"c{len(self.numbers)}"
        if shape:
            self.numbers[name] = np.full(shape, value, np.float32)
            self.reals[name] = np.float64(np.float32(value))
            return name
        self.numbers |= {f"{name}_q": np.uint8(200), f"{name}_s": np.float32(value / 200)}
        self.nodes.append(N("DequantizeLinear", [f"{name}_q", f"{name}_s"], [name]))
        self.reals[name] = 200 * np.float64(self.numbers[f"{name}_s"])
        return name

    def op(self, op_type: str, *inputs: str, of: Callable[..., np.ndarray]) -> str:
        """Add an operator, whose result goes through bytes."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(N(op_type, list(inputs), [name]))
        self.reals[name] = of(*(self.reals[each] for each in inputs))
        return self.through(name)

    def through(self, value: str) -> str:
        """Quantize and dequantize a value."""
        real, span = self.reals[value], np.iinfo(self.dtype)
        low, high = min(real.min(), 0.0), max(real.max(), 0.0)
        step = np.float32((high - low) / 255)
        zero = self.dtype(np.clip(np.rint(span.min - low / step), span.min, span.max))
        self.numbers |= {f"{value}_s": step, f"{value}_z": zero}
        grid = [f"{value}_s", f"{value}_z"]
        self.nodes.append(N("QuantizeLinear", [value, *grid], [f"{value}_q"]))
        self.nodes.append(N("DequantizeLinear", [f"{value}_q", *grid], [f"{value}_d"]))
        whole = np.clip(np.rint(real / np.float64(step)) + int(zero), span.min, span.max)
        self.bytes = whole.astype(self.dtype)
        self.reals[f"{value}_d"] = (whole - int(zero)) * np.float64(step)
        self.last = f"{value}_q"
        return f"{value}_d"

    def model(self, shape: Sequence[int | str], *more: str) -> ModelProto:
        """Return the model from ``x`` to the last bytes, and to other values of the chain."""
        while self.nodes[-1].op_type == "DequantizeLinear":
            self.nodes.pop()
        return model_of(self.nodes, self.numbers, shape, KINDS[self.dtype], [self.last, *more])


def model_of(
    nodes: Sequence[NodeProto], numbers: dict[str, np.ndarray], shape: Sequence[int | str], kind: int,
    results: Sequence[str], opset: int = 19,
) -> ModelProto:  # fmt: skip
    constants = [numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()]
    given = [helper.make_tensor_value_info("x", kind, shape)]
    outputs = [ValueInfoProto(name=name) for name in results]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", given, outputs, constants), opset_imports=imports)


def gelu(chain: Chain) -> None:
    divided = chain.op("Div", "v", chain.constant(math.sqrt(2.0), 1), of=np.divide)
    more = chain.op("Add", chain.op("Erf", divided, of=_erf), chain.constant(1.0), of=np.add)
    product = chain.op("Mul", "v", more, of=np.multiply)
    chain.op("Mul", chain.constant(0.5), product, of=np.multiply)


def swish(chain: Chain) -> None:
    chain.op("Mul", chain.op("Sigmoid", "v", of=lambda v: 1 / (1 + np.exp(-v))), "v", of=np.multiply)


def bounded(chain: Chain) -> None:
    chain.op("Tanh", chain.op("Relu", "v", of=lambda v: np.maximum(v, 0)), of=np.tanh)


def _kernels(partitions: list[CpuPartition]) -> list[str]:
    assert not any(partition.refusals for partition in partitions)
    return [step.kernel for each in partitions for program in each.native_programs for step in program.steps]


def _run(model: ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


@pytest.mark.parametrize("dtype", KINDS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("write", [gelu, swish, bounded])
@pytest.mark.parametrize("shape", [(3, 2731), ("n", 5)])
def test_a_chain_between_bytes_is_one_table(
    write: Callable[[Chain], None], dtype: type, shape: tuple[int | str, int], partitions: list[CpuPartition]
) -> None:
    rows, columns = shape
    x = _bytes(dtype, 97 if isinstance(rows, str) else rows, columns)
    chain = Chain(dtype, x)
    write(chain)
    (found,) = _run(chain.model(shape), x)
    apart = np.abs(found.astype(int) - chain.bytes.astype(int))
    assert apart.max() <= 1, "float32 may end on the other side of a half"
    assert np.count_nonzero(apart) <= apart.size // 50
    assert _kernels(partitions) == ["byte_table"]


@pytest.mark.parametrize("dtype", KINDS, ids=lambda each: each.__name__)
def test_a_sigmoid_of_images_is_one_table(dtype: type, partitions: list[CpuPartition]) -> None:
    x = _bytes(dtype, 2, 17, 16, 16)
    grids = {"s": np.float32(0.05), "z": dtype(5), "t": np.float32(1 / 256), "u": dtype(np.iinfo(dtype).min)}
    node = N("QLinearSigmoid", ["x", *grids], ["y"], domain="com.microsoft")
    (found,) = _run(model_of([node], grids, x.shape, KINDS[dtype], ["y"]), x)
    real = 1 / (1 + np.exp(-(x.astype(np.float64) - 5) * float(grids["s"])))
    wanted = np.clip(np.rint(real * 256) + np.iinfo(dtype).min, np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert np.count_nonzero(found != wanted) <= found.size // 50
    assert _kernels(partitions) == ["byte_table"]


def test_images_behind_a_convolution_stay_channels_last(partitions: list[CpuPartition]) -> None:
    random, x = np.random.default_rng(2), _bytes(np.uint8, 1, 8, 33, 35)
    numbers = {
        "s": np.float32(0.03), "z": np.uint8(120), "w": random.integers(-64, 64, (16, 8, 3, 3)).astype(np.int8),
        "t": np.float32(0.01), "v": np.int8(0), "o": np.float32(0.06), "p": np.uint8(128), "q": np.float32(1 / 256),
        "r": np.uint8(0),
    }  # fmt: skip
    first = N("QLinearConv", ["x", "s", "z", "w", "t", "v", "o", "p"], ["c"], pads=[1] * 4)
    middle = N("QLinearSigmoid", ["c", "o", "p", "q", "r"], ["a"], domain="com.microsoft")
    numbers["w2"] = random.integers(-64, 64, (4, 16, 3, 3)).astype(np.int8)
    last = N("QLinearConv", ["a", "q", "r", "w2", "t", "v", "o", "p"], ["y"], pads=[1] * 4)
    model = model_of([first, middle, last], numbers, x.shape, TensorProto.UINT8, ["y"])
    (found,) = _run(model, x)
    kernels = _kernels(partitions)
    place = kernels.index("byte_table")
    assert kernels[place - 1].startswith("bytes")
    reference = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    (wanted,) = reference.run(None, {"x": x})
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert np.count_nonzero(found != wanted) <= found.size // 50


def _read_elsewhere(chain: Chain) -> ModelProto:
    swish(chain)
    return chain.model((3, 2731), next(node.output[0] for node in chain.nodes if node.op_type == "Sigmoid"))


def _changed(chain: Chain, op_type: str, operand: str) -> ModelProto:
    """Return the model of a Tanh whose operand was changed by another operator, with no bytes between."""
    chain.op("Tanh", "v", of=np.tanh)
    model = chain.model((3, 2731))
    model.graph.node.insert(1, N(op_type, ["v", operand], ["w"]))
    model.graph.node[2].input[0] = "w"
    return model


def _for_each_column(chain: Chain) -> ModelProto:
    return _changed(chain, "Add", chain.constant(0.5, 2731))


def _of_two_tensors(chain: Chain) -> ModelProto:
    model = _changed(chain, "Add", "x2")
    model.graph.input.append(helper.make_tensor_value_info("x2", TensorProto.FLOAT, (3, 2731)))
    return model


def _short(chain: Chain) -> ModelProto:
    chain.op("Mul", chain.op("Relu", "v", of=lambda v: np.maximum(v, 0)), "v", of=np.multiply)
    return chain.model((3, 2731))


def _few(chain: Chain) -> ModelProto:
    swish(chain)
    return chain.model((MIN_COUNT // 64, 63))


def _of_more_axes(chain: Chain) -> ModelProto:
    return _changed(chain, "Mul", chain.constant(0.5, 1, 1, 1))


@pytest.mark.parametrize("write", [_read_elsewhere, _for_each_column, _of_two_tensors, _short, _few, _of_more_axes])
def test_other_chains_are_computed(write: Callable[[Chain], ModelProto], partitions: list[CpuPartition]) -> None:
    ort.InferenceSession(write(Chain(np.uint8, _bytes(np.uint8, 3, 2731))).SerializeToString())
    kernels = _kernels(partitions)
    assert kernels
    assert "byte_table" not in kernels or write is _read_elsewhere
    if write is _read_elsewhere:
        assert kernels != ["byte_table"], "what is read elsewhere is still computed"


def test_int8_is_computed_where_gather_does_not_count_from_the_end(partitions: list[CpuPartition]) -> None:
    x = _bytes(np.int8, 3, 2731)
    grids = {"s": np.float32(0.05), "z": np.int8(5), "t": np.float32(1 / 256), "u": np.int8(-128)}
    node = N("QLinearSigmoid", ["x", *grids], ["y"], domain="com.microsoft")
    _run(model_of([node], grids, x.shape, TensorProto.INT8, ["y"], opset=10), x)
    assert "byte_table" not in _kernels(partitions)


@pytest.mark.parametrize("dtype", KINDS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("indices", [TensorProto.INT32, TensorProto.INT64])
def test_a_gather_of_cast_bytes_is_a_table_whoever_wrote_it(
    dtype: type, indices: int, partitions: list[CpuPartition]
) -> None:
    x, table = _bytes(dtype, 5, 77), np.random.default_rng(1).permutation(256).astype(np.uint8)
    nodes = [N("Cast", ["x"], ["i"], to=indices), N("Gather", ["t", "i"], ["y"])]
    (found,) = _run(model_of(nodes, {"t": table}, x.shape, KINDS[dtype], ["y"]), x)
    np.testing.assert_array_equal(found, table[x.astype(int)])
    assert _kernels(partitions) == ["byte_table"]


def test_a_table_of_fewer_bytes_checks_its_indices() -> None:
    x = np.full((5, 77), 255, np.uint8)
    nodes = [N("Cast", ["x"], ["i"], to=TensorProto.INT32), N("Gather", ["t", "i"], ["y"])]
    model = model_of(nodes, {"t": np.arange(255, dtype=np.uint8)}, x.shape, TensorProto.UINT8, ["y"])
    with pytest.raises(ort.OrtError, match="out of data bounds"):
        _run(model, x)


def _bytes(dtype: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, 256, shape, np.uint8).view(dtype)
