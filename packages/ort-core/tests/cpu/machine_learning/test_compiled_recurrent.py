"""LSTM, GRU and RNN compiled: against the reference kernels over all their attributes, sizes and threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.nests.elementwise_nests import DENSE, ElementwiseNest, NestInput, elementwise_kernel
from ort_core.cpu.lowering.sequences import gate_functions
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, element

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SIZES = ((5, 1), (4, 3), (2, 9), (0, 2), (1, 0))  # (steps, batch)


@dataclass
class Layer:
    """A model of one recurrent layer with random weights."""

    op_type: str
    inputs: int
    hidden: int
    direction: str = "forward"
    layout: int = 0
    has_bias: bool = True
    has_initial: bool = False
    has_lengths: bool = False
    has_peepholes: bool = False
    attributes: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.inputs * 131 + self.hidden)
        self.directions = 2 if self.direction == "bidirectional" else 1

    def model(self) -> ModelProto:
        gates, d, h = GATES[self.op_type], self.directions, self.hidden
        names = ["x", "w", "r", *[""] * 5]
        constants = {"w": (d, gates * h, self.inputs), "r": (d, gates * h, h)}
        info = helper.make_tensor_value_info
        state = ["b", d, h] if self.layout else [d, "b", h]
        given = [info("x", FLOAT, ["b", "s", self.inputs] if self.layout else ["s", "b", self.inputs])]
        if self.has_bias:
            names[3], constants["bias"] = "bias", (d, 2 * gates * h)
        if self.has_lengths:
            names[4] = "lengths"
            given.append(info("lengths", INT32, ["b"]))
        for index, name in ((5, "h0"), (6, "c0")):
            if self.has_initial and (index == 5 or self.op_type == "LSTM"):
                names[index] = name
                given.append(info(name, FLOAT, state))
        if self.has_peepholes:
            names[7], constants["p"] = "p", (d, 3 * h)
        while not names[-1]:
            names.pop()
        outputs = ["y", "yh", "yc"][: 3 if self.op_type == "LSTM" else 2]
        node = helper.make_node(
            self.op_type, names, outputs, hidden_size=h, direction=self.direction, layout=self.layout, **self.attributes
        )
        weights = [
            numpy_helper.from_array((self.random.standard_normal(shape) * 0.3).astype(np.float32), name)
            for name, shape in constants.items()
        ]
        graph = helper.make_graph([node], "layer", given, [info(o, FLOAT, None) for o in outputs], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def feeds(self, steps: int, batch: int) -> dict[str, np.ndarray]:
        def normal(*shape: int) -> np.ndarray:
            return self.random.standard_normal(shape).astype(np.float32)

        found = {"x": normal(batch, steps, self.inputs) if self.layout else normal(steps, batch, self.inputs)}
        if self.has_lengths:
            found["lengths"] = self.random.integers(0, steps + 1, batch).astype(np.int32)
        state = (batch, self.directions, self.hidden) if self.layout else (self.directions, batch, self.hidden)
        if self.has_initial:
            found["h0"] = normal(*state)
            if self.op_type == "LSTM":
                found["c0"] = normal(*state)
        return found


CASES = list(itertools.product(("forward", "reverse", "bidirectional"), (0, 1), (False, True), (False, True)))


@pytest.mark.sweep
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_layer_gives_what_the_reference_gives(check: Callable[..., None], op_type: str, number: int) -> None:
    direction, layout, has_initial, has_lengths = CASES[number]
    attributes: dict[str, object] = {"clip": 0.4} if number % 4 == 1 else {}
    if op_type == "GRU":
        attributes["linear_before_reset"] = number % 2
    if op_type == "LSTM":
        attributes["input_forget"] = int(number % 3 == 0)
    hidden = (16, 21, 5)[number % 3]
    layer = Layer(
        op_type, 4 + number % 5, hidden, direction, layout, number % 5 > 0, has_initial, has_lengths,
        op_type == "LSTM" and number % 2 == 1, attributes,
    )  # fmt: skip
    check(layer.model(), [layer.feeds(*size) for size in SIZES])


FUNCTIONS = ["Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign",
             "Tanh", "ThresholdedRelu"]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_activation_gives_what_the_reference_gives(check: Callable[..., None], name: str) -> None:
    parameters = {"activation_alpha": [0.5], "activation_beta": [0.25]}
    layer = Layer("RNN", 3, 7, attributes={"activations": [name], **parameters})
    check(layer.model(), [layer.feeds(4, 3)])


def test_softplus_keeps_its_digits_far_below_zero() -> None:
    weights = {"w": np.eye(8, dtype=np.float32)[None], "r": np.zeros((1, 8, 8), np.float32)}
    node = helper.make_node("RNN", ["x", "w", "r"], ["", "y"], hidden_size=8, activations=["Softplus"])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 8]) for n in ("x", "y")]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "far", infos[:1], infos[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.linspace(-60, 4, 16).astype(np.float32).reshape(1, 2, 8)
    expected = np.log1p(np.exp(x.astype(np.float64)))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-6)


def test_activations_take_their_parameters_in_order(check: Callable[..., None]) -> None:
    named = {"activations": ["HardSigmoid", "LeakyRelu", "ScaledTanh"], "activation_alpha": [0.3, 0.1, 0.7]}
    layer = Layer("LSTM", 3, 6, attributes={**named, "activation_beta": [0.4, 0.9]})
    check(layer.model(), [layer.feeds(4, 3)])


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_layer_gives_the_same_bits_with_any_number_of_threads(same_bits: Callable[..., None], op_type: str) -> None:
    layer = Layer(op_type, 24, 37)
    same_bits(layer.model(), layer.feeds(20, 11))


def test_length_beyond_the_sequence_is_the_same_error_as_of_the_reference() -> None:
    layer = Layer("GRU", 3, 4, has_lengths=True)
    model, feeds = layer.model(), layer.feeds(4, 2)
    feeds["lengths"] = np.array([2, 5], np.int32)
    texts = []
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
        with pytest.raises(ort.OrtError) as error:
            session.run(None, feeds)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_not_a_number_stays_in_its_row(compiled: Callable[[ModelProto], ort.InferenceSession]) -> None:
    layer = Layer("LSTM", 3, 5, "bidirectional")
    feeds = layer.feeds(3, 4)
    session = compiled(layer.model())
    clean = session.run(None, feeds)[0]
    feeds["x"][1, 2, 0] = np.nan
    spoilt = session.run(None, feeds)[0]
    assert np.isnan(spoilt[1:, 0, 2]).all(), "a later step of the row forgot it"
    assert np.isnan(spoilt[:2, 1, 2]).all(), "backwards, an earlier step forgot it"
    others = [0, 1, 3]
    np.testing.assert_array_equal(spoilt[:, :, others], clean[:, :, others])


@pytest.mark.parametrize(("name", "truth"), [("gate_tanh", np.tanh), ("gate_sigmoid", None)])
def test_gate_function_is_within_its_stated_error(name: str, truth: Callable[[np.ndarray], np.ndarray] | None) -> None:
    bits = np.arange(0, 2**32, 4_099, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    x = np.concatenate([x, np.linspace(-20, 20, 400_001, dtype=np.float32), [np.inf, -np.inf]]).astype(np.float32)
    found = applied(getattr(gate_functions, name), x)
    wide = x.astype(np.float64)
    expected = truth(wide) if truth else 0.5 + 0.5 * np.tanh(wide / 2)
    assert np.abs(found - expected).max() <= gate_functions.MAX_ERROR
    assert np.isnan(applied(getattr(gate_functions, name), np.full(3, np.nan, np.float32))).all()
    far = np.array([20.0, 1e30, np.inf], np.float32)
    least = -1.0 if truth else 0.0
    np.testing.assert_array_equal(applied(getattr(gate_functions, name), far), [1.0] * 3)
    np.testing.assert_array_equal(applied(getattr(gate_functions, name), -far), [least] * 3)


def applied(function: Callable[[Scalar], Scalar], x: np.ndarray) -> np.ndarray:
    expression = function(element(0, DataType.FLOAT))
    nest = ElementwiseNest(1, (NestInput(DataType.FLOAT, DENSE),), ((expression, DataType.FLOAT),))
    kernel = elementwise_kernel(nest, host_target())
    symbol = kernel.name
    module = compile_module(module_text(kernel.generate(symbol)), host_target())
    result = np.empty_like(x)
    table = np.array([result.ctypes.data, x.ctypes.data, x.size, 1], np.int64)
    steps = np.array([module.address(symbol), table.ctypes.data, 1, 0], np.int64)
    ThreadPool(1).run(int(steps.ctypes.data), 1)
    return result
