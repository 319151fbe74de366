"""What is rounded on the way, beside onnxruntime: quotients of QuantizeLinear from opset 23 on, exponents of Pow."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def results(
    op_type: str, x: np.ndarray, constants: list[np.ndarray], opset: int, **attributes: int
) -> list[np.ndarray]:
    """Return onnxruntime's result and that of each provider of ours."""
    names = [f"c{place}" for place in range(len(constants))]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", kind, x.shape)], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in zip(names, constants, strict=True)],
    )  # fmt: skip
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    peer = onnxruntime.InferenceSession(content.SerializeToString(), providers=PROVIDERS[:1])
    ours = [ort.InferenceSession(content.SerializeToString(), providers=[each]) for each in PROVIDERS]
    return [session.run(None, {"x": x})[0] for session in (peer, *ours)]


FORMS = [("ee", 21, 0), ("ff", 21, 0)] + [
    (types, opset, precision) for types in ("ee", "ef", "fe", "ff") for opset in (23, 25) for precision in (0, 1, 10)
]


@pytest.mark.parametrize(("types", "opset", "precision"), FORMS)
def test_quotients_are_rounded_to_the_type_of_the_scale_or_to_precision(types: str, opset: int, precision: int) -> None:
    x = (np.random.default_rng(0).standard_normal(1100) * 2).astype(types[0])
    x[:4] = 1.118, -1.442, -1.118, 0.4375  # by a scale of 0.0324 near halves: float16 rounds them to even
    constants = [np.array(0.0324, types[1]), np.array(32, np.int8)]
    found = results("QuantizeLinear", x, constants, opset, **({"precision": precision} if precision else {}))
    if types == "ee":
        assert found[0][0] == (66 if opset >= 23 and precision != 1 else 67)
    for ours in found[1:]:
        np.testing.assert_array_equal(ours, found[0])


@pytest.mark.parametrize("zero_point", [False, True])
@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"])
def test_a_quotient_of_zero_keeps_its_sign_in_8_bits(kind: str, zero_point: bool) -> None:
    x = np.resize(np.array([-0.0, 0.0, -1e-9, 1e-9, -3.0, 500.0], np.float32), 1100)
    zero = helper.make_tensor("z", getattr(TensorProto, kind), [], [0.0])
    named = {} if zero_point else {"output_dtype": zero.data_type}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", *(["z"] if zero_point else [])], ["q"], **named),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    constants = [numpy_helper.from_array(np.array(0.5, np.float32), "s"), zero]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    opsets = [helper.make_opsetid("", 21)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    [expected] = onnxruntime.InferenceSession(content, providers=PROVIDERS[:1]).run(None, {"x": x})
    for provider in PROVIDERS:
        [found] = ort.InferenceSession(content, providers=[provider]).run(None, {"x": x})
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("integers", [np.int32, np.int64])
@pytest.mark.parametrize("floats", ["f4", "f8"])
def test_integer_exponents_of_many_digits_stay_odd(floats: str, integers: type[np.integer]) -> None:
    x = np.resize(np.array([-2, -1, -1.5, -3, -0.0, -1, -1], floats), 1100)
    y = np.resize(np.array([2**24 + 1, 2**31 - 1, 2**24, 3, 2, 0, 2**24 + 3], integers), 1100)
    found = results("Pow", x, [y], 21)
    for ours in found[1:]:
        np.testing.assert_array_equal(ours, found[0])
