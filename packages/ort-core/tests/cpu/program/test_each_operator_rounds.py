"""Compiled groups round after each operator, as single nodes do: chains of exact operators equal numpy bit for bit.

Add, Sub, Mul, Div, Sqrt and roundings have one right result for given floats. A multiplication that is fused with the
sum behind it rounds once less: ``x * x - y * y`` of equal x and y is then not zero, its root is NaN, and what stands
halfway between two steps of a quantization goes to the other one. Comparisons within a tolerance do not see this, and
random graphs do not ask what hangs on a last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort

LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
BINARY: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
}  # fmt: skip
UNARY: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs, "Neg": np.negative, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint,
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
}  # fmt: skip
NUMBERS = (0.1, 0.3, 0.5, 1 / 3, 2.0, 3.0, 7.0, 10.0)


@dataclass
class Chain:
    """A graph under construction, with the value of each of its names."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)

    def fed(self, value: np.ndarray) -> str:
        return self._named(value, self.feeds)

    def constant(self, number: float, dtype: np.dtype) -> str:
        return self._named(np.array(number, dtype), self.constants)

    def node(self, op_type: str, inputs: Sequence[str], value: np.ndarray) -> str:
        name = f"v{len(self.values)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name]))
        self.values[name] = value
        return name

    def _named(self, value: np.ndarray, kind: dict[str, np.ndarray]) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = kind[name] = value
        return name

    def model(self, output: str) -> bytes:
        def info(name: str, array: np.ndarray) -> object:
            return helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )

        inputs = [info(name, array) for name, array in self.feeds.items()]
        initializers = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        outputs = [info(output, self.values[output])]
        graph = helper.make_graph(self.nodes, "chain", inputs, outputs, initializer=initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def drawn_chain(seed: int) -> tuple[Chain, str]:
    """Return a chain of exact operators and the name of its result."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    dtype = np.dtype(draw.choice(("float32", "float32", "float64")))
    shape = draw.choice(((7,), (3, 17), (2, 5, 16), (40, 33)))
    chain = Chain()
    first = (numbers.integers(-40, 40, shape) / draw.choice((1, 3, 4, 7, 10))).astype(dtype)
    row = (numbers.integers(1, 40, shape[-1:]) / draw.choice((1, 3, 10))).astype(dtype)
    operands = [chain.fed(first), chain.fed(first.copy() if draw.random() < 0.5 else row), chain.fed(row)]
    result = operands[0]
    with np.errstate(all="ignore"):
        for _ in range(draw.randint(2, 8)):
            result = _step(draw, chain, result, operands)
            operands.append(result)
    return chain, result


def _step(draw: random.Random, chain: Chain, result: str, operands: Sequence[str]) -> str:
    value, kind = chain.values[result], draw.random()
    if kind < 0.15:
        op_type = draw.choice(tuple(UNARY))
        return chain.node(op_type, [result], UNARY[op_type](value))
    if kind < 0.25:
        positive = chain.node("Abs", [result], np.abs(value))
        return chain.node("Sqrt", [positive], np.sqrt(np.abs(value)))
    if kind < 0.4:
        return chain.node("Mul", [result, result], value * value)
    other = draw.choice(operands[-4:]) if draw.random() < 0.6 else chain.constant(draw.choice(NUMBERS), value.dtype)
    op_type = draw.choice((*BINARY, "Mul", "Mul", "Sub", "Add"))
    return chain.node(op_type, [result, other], BINARY[op_type](value, chain.values[other]))


def result_of(model: bytes, feeds: Mapping[str, np.ndarray], level: ort.GraphOptimizationLevel) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = level, 1
    result = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    assert isinstance(result, np.ndarray)
    return result


def test_chains_of_exact_operators_equal_numpy_bit_for_bit() -> None:
    for seed in range(40):
        chain, output = drawn_chain(seed)
        found = result_of(chain.model(output), chain.feeds, LEVELS[seed % 2])
        operators = [node.op_type for node in chain.nodes]
        np.testing.assert_array_equal(found, chain.values[output], f"seed {seed}: {operators}")


def exact(
    *nodes: tuple[str, Sequence[str], str], constants: Mapping[str, np.ndarray], **feeds: np.ndarray
) -> np.ndarray:
    """Return what the compiled nodes make of the feeds."""
    kinds = {np.dtype("float32"): TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kinds[x.dtype], [None] * x.ndim) for name, x in feeds.items()]
    made = [helper.make_node(op_type, list(ins), [out]) for op_type, ins, out in nodes]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    outputs = [helper.make_empty_tensor_value_info(nodes[-1][2])]
    graph = helper.make_graph(made, "exact", inputs, outputs, initializer=initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return result_of(model.SerializeToString(), feeds, LEVELS[-1])


def test_the_difference_of_equal_squares_is_zero_and_so_is_its_root() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    found = exact(
        ("Mul", "xx", "a"), ("Mul", "yy", "b"), ("Sub", "ab", "c"), ("Sqrt", "c", "d"), constants={}, x=x, y=x.copy()
    )
    np.testing.assert_array_equal(found, np.zeros_like(x))


def test_the_deviation_of_a_constant_signal_is_zero() -> None:
    x = np.repeat(np.random.default_rng(0).standard_normal((50, 1)).astype(np.float32), 4, axis=1)
    mean, square_mean = "m", "s"
    nodes = (
        ("ReduceMean", "x", mean), ("Mul", "xx", "q"), ("ReduceMean", "q", square_mean), ("Mul", "mm", "p"),
        ("Sub", "sp", "v"), ("Sqrt", "v", "d"),
    )  # fmt: skip
    made = [helper.make_node(op, list(ins), [out], axes=[1] if op == "ReduceMean" else None) for op, ins, out in nodes]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        made, "deviation", [info("x", TensorProto.FLOAT, [None, 4])], [info("d", TensorProto.FLOAT, [None, 1])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for level in LEVELS:
        np.testing.assert_array_equal(result_of(model.SerializeToString(), {"x": x}, level), np.zeros((50, 1)))


@pytest.mark.parametrize(("op_type", "rounding"), [("Ceil", np.ceil), ("Round", np.rint), ("Floor", np.floor)])
def test_a_rounding_behind_a_scale_and_a_shift_decides_as_numpy(
    op_type: str, rounding: Callable[[np.ndarray], np.ndarray]
) -> None:
    x, scale, shift = np.arange(1000, dtype=np.float32), np.float32(0.1), np.float32(0.3)
    found = exact(
        ("Mul", "xw", "a"), ("Add", "ab", "c"), (op_type, "c", "y"),
        constants={"w": np.array(scale), "b": np.array(shift)}, x=x,
    )  # fmt: skip
    np.testing.assert_array_equal(found, rounding(x * scale + shift))


def test_a_quantization_behind_a_scale_and_a_shift_decides_as_numpy() -> None:
    """x * 2 / 255 - 1 lies halfway between two steps of 2 / 255 for each x."""
    x, step = np.arange(256, dtype=np.float32), np.float32(2 / 255)
    constants = {"w": np.array(step), "b": np.array(1, np.float32), "s": np.array(step), "z": np.array(127, np.uint8)}
    found = exact(
        ("Mul", "xw", "a"), ("Sub", "ab", "c"), ("QuantizeLinear", "csz", "y"), constants=constants, x=x
    )  # fmt: skip
    expected = np.clip(np.rint((x * step - np.float32(1)) / step) + 127, 0, 255)
    np.testing.assert_array_equal(found, expected)
