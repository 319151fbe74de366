"""onnxruntime's products and convolutions with something folded in run as compiled parts, as their kernels compute."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_core as ort
from ort_core.errors import OrtError

DOMAIN = "com.microsoft"
random = np.random.default_rng(17)


@pytest.fixture(autouse=True)
def compilation_must_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")


def numbers(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


WEIGHTS = {"w": numbers(12, 6, 3, 3) * 0.2, "b": numbers(12)}
GROUPED = {"w": numbers(12, 3, 3, 3) * 0.2, "b": numbers(12)}
LAST = {"w": numbers(12, 3, 3, 6) * 0.2, "b": numbers(12)}
MATRIX = {"w": numbers(20, 9) * 0.2, "c": numbers(9)}
CASES = {
    "relu": ("FusedConv", {"x": (2, 6, 9, 8)}, WEIGHTS, "x w b", {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "leaky": ("FusedConv", {"x": (1, 6, 9, 8)}, GROUPED, "x w b",
              {"activation": "LeakyRelu", "activation_params": [0.2], "group": 2, "strides": [2, 1]}),
    "clip": ("FusedConv", {"x": (1, 6, 15, 15)}, WEIGHTS, "x w b",
             {"activation": "Clip", "activation_params": [-0.5, 0.5], "auto_pad": "SAME_UPPER"}),
    "addend": ("FusedConv", {"x": (2, 6, 9, 8), "z": (2, 12, 7, 6)}, WEIGHTS, "x w b z", {"activation": "Sigmoid"}),
    "no activation": ("FusedConv", {"x": (1, 6, 9)}, {"w": numbers(12, 6, 3) * 0.2}, "x w", {}),
    "channels last": ("NhwcConv", {"x": (2, 9, 8, 6)}, LAST, "x w b",
                      {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "dilations": [1, 2]}),
    "channels last, fused": ("NhwcFusedConv", {"x": (2, 9, 8, 6), "z": (2, 7, 6, 12)}, WEIGHTS, "x w b z",
                             {"activation": "Relu", "kernel_shape": [3, 3]}),
    "gemm": ("FusedGemm", {"x": (7, 20)}, MATRIX, "x w c", {"activation": "Tanh", "alpha": 0.5, "beta": 2.0}),
    "turned gemm": ("FusedGemm", {"x": (20, 7)}, {"w": numbers(9, 20) * 0.2}, "x w",
                    {"activation": "Relu", "transA": 1, "transB": 1}),
    "matmul": ("FusedMatMulActivation", {"x": (2, 7, 20)}, MATRIX, "x w", {"activation": "Relu", "alpha": 0.25}),
    "gelu": ("GemmFastGelu", {"x": (7, 20)}, MATRIX, "x w c", {}),
    "split gelu": ("BiasSplitGelu", {"x": (2, 5, 2560)}, {"b": numbers(2560)}, "x b", {}),
    "pads": ("ConvTransposeWithDynamicPads", {"x": (2, 6, 9, 8)},
             {"w": numbers(6, 5, 3, 3), "p": np.array([1, 0, 1, 2]), "b": numbers(5)}, "x w p b", {"strides": [2, 1]}),
    "no pads": ("ConvTransposeWithDynamicPads", {"x": (1, 6, 9, 8)}, {"w": numbers(6, 5, 3, 3)}, "x w",
                {"output_padding": [1, 0], "strides": [2, 2]}),
    "bias": ("BiasAdd", {"x": (2, 5, 320), "z": (2, 5, 320)}, {"b": numbers(320)}, "x b z", {}),
}  # fmt: skip


def model(op_type, feeds, constants, inputs, attributes, *, is_open):
    kind = onnx.TensorProto.FLOAT
    opened = {0, 2} if is_open else set()
    given = []
    for name, shape in feeds.items():
        dims = [f"n{axis}" if axis in opened - {len(shape) - 1} else size for axis, size in enumerate(shape)]
        given.append(helper.make_tensor_value_info(name, kind, dims))
    node = helper.make_node(op_type, inputs.split(), ["y"], domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node], "g", given, [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(each, name) for name, each in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_parts_are_compiled_and_compute_what_the_operator_does(case, is_open):
    op_type, feeds, constants, inputs, attributes = CASES[case]
    content = model(op_type, feeds, constants, inputs, attributes, is_open=is_open and len(feeds) == 1)
    arrays = {name: numbers(*shape) for name, shape in feeds.items()}
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    kernels = ort.InferenceSession(content, providers=["ReferenceExecutionProvider"])
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, arrays)[0], kernels.run(None, arrays)[0], rtol=1e-4, atol=1e-5)
    assert "numpy" not in str(session.explain())


def test_an_addend_that_may_be_broadcast_stays_with_the_kernel():
    case = ("FusedConv", {"x": (1, 6, 9, 8), "z": (1, 12, 1, 6)}, WEIGHTS, "x w b z", {"activation": "Relu"})
    content = model(*case, is_open=False)
    arrays = {name: numbers(*shape) for name, shape in case[1].items()}
    found = []
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        try:
            found.append(ort.InferenceSession(content, providers=[provider]).run(None, arrays)[0].tolist())
        except OrtError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("op_type", "bias"), [("FusedGemm", (7, 9)), ("FusedGemm", (2, 1, 9)), ("GemmFastGelu", (7, 9))]
)
def test_a_bias_that_would_make_the_product_larger_is_refused(op_type, bias):
    constants = {"w": MATRIX["w"], "c": numbers(*bias)}
    attributes = {"activation": "Relu"} if op_type == "FusedGemm" else {}
    content = model(op_type, {"x": (1, 20)}, constants, "x w c", attributes, is_open=False)
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        with pytest.raises(OrtError, match="Invalid bias shape for broadcast"):
            ort.InferenceSession(content, providers=[provider]).run(None, {"x": numbers(1, 20)})


@pytest.mark.parametrize("open_rows", [False, True])
@pytest.mark.parametrize("op_type", ["BiasAdd", "BiasSplitGelu"])
def test_a_bias_that_is_no_row_is_refused(op_type, open_rows):
    """Parts would broadcast it: the operator's kernel runs, and says what is wrong."""
    feeds = {"x": numbers(2, 3, 320)} | ({"z": numbers(2, 3, 320)} if op_type == "BiasAdd" else {})
    node = helper.make_node(op_type, ["x", "b", *list(feeds)[1:]], ["y"], domain=DOMAIN)
    sizes = [["n", "m", "k"] if open_rows else [2, 3, 320]] * len(feeds)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, 1, s) for n, s in zip(feeds, sizes, strict=True)],
        [helper.make_tensor_value_info("y", 1, None)], [numpy_helper.from_array(numbers(1), "b")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    with pytest.raises(OrtError, match="bias must have shape"):
        session.run(None, feeds)
