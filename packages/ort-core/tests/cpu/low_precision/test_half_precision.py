"""float16 graphs by the CPU provider, against float64; they are computed in float32 and rounded where they leave."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto
from test_groups import FLOAT, N, model_of, session
from test_quantized_groups import run_native

from ort_core.cpu.codegen.jit import restricted_target, target_of
from ort_core.cpu.codegen.scalar_printer import converts_halves
from ort_core.tolerances import compare

HALF = TensorProto.FLOAT16
RANDOM = np.random.default_rng(5)


def halves(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float16)


W, B, SCALE, KERNEL = halves(24, 17), halves(17), halves(24), halves(6, 3, 3, 3)
CASES: dict[str, tuple[list[NodeProto], list[int | str]]] = {
    "arithmetic": ([N("Mul", ["x", "x"], ["t"]), N("Add", ["t", "scale"], ["u"]), N("Neg", ["u"], ["y"])], ["N", 24]),
    "activation": ([N("Sigmoid", ["x"], ["t"]), N("Tanh", ["t"], ["u"]), N("Exp", ["u"], ["y"])], ["N", 24]),
    "product": ([N("MatMul", ["x", "w"], ["t"]), N("Add", ["t", "b"], ["u"]), N("Relu", ["u"], ["y"])], ["N", 24]),
    "computed product": ([N("Transpose", ["x"], ["t"], perm=[1, 0]), N("MatMul", ["x", "t"], ["y"])], ["N", 24]),
    "normalisation": ([N("LayerNormalization", ["x", "scale"], ["t"]), N("Softmax", ["t"], ["y"])], ["N", 24]),
    "convolution": ([N("Conv", ["x", "kernel"], ["t"], pads=[1, 1, 1, 1]), N("Relu", ["t"], ["y"])], ["N", 3, 7, 8]),
    "views": ([N("Reshape", ["x", "shape"], ["t"]), N("Concat", ["t", "t"], ["y"], axis=1)], ["N", 24]),
    "casts": ([N("Cast", ["x"], ["t"], to=FLOAT), N("Abs", ["t"], ["u"]), N("Cast", ["u"], ["y"], to=HALF)], ["N", 24]),
}  # fmt: skip


def model_for(nodes: list[NodeProto], shape: list[int | str], dtype: int) -> ModelProto:
    number = np.float16 if dtype == HALF else np.float64
    constants = {"w": W, "b": B, "scale": SCALE, "kernel": KERNEL}
    used = {name for node in nodes for name in node.input}
    floats = {name: array.astype(number) for name, array in constants.items() if name in used}
    wide = [N(node.op_type, list(node.input), list(node.output)) for node in nodes]
    for copy, node in zip(wide, nodes, strict=True):
        copy.attribute.extend(node.attribute)
        if node.op_type == "Cast" and dtype != HALF:
            copy.attribute[0].i = dtype
    if "shape" in used:
        floats["shape"] = np.array([-1, 6, 4])
    return model_of(wide, {"x": (dtype, shape)}, {"y": dtype}, floats)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_float16_equals_float64_rounded_once(name: str, size: int) -> None:
    nodes, shape = CASES[name]
    x = halves(size, *(each for each in shape if isinstance(each, int)))
    wide = session(model_for(nodes, shape, TensorProto.DOUBLE), "ReferenceExecutionProvider")
    (expected,) = wide.run(None, {"x": x.astype(np.float64)})
    (found,) = run_native(model_for(nodes, shape, HALF), {"x": x})
    assert found.dtype == np.float16
    comparison = compare(found, expected.astype(np.float16), "rounding")
    assert comparison.passes, comparison


def test_float16_keeps_infinities_and_nan() -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 65504.0, -65504.0, 6e-8]], np.float16)
    model = model_of([N("Add", ["x", "x"], ["t"]), N("Neg", ["t"], ["y"])], {"x": (HALF, ["N", 6])}, {"y": HALF})
    (found,) = run_native(model, {"x": x})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, -(x + x))


def test_float16_needs_a_processor_that_converts_it() -> None:
    assert converts_halves(target_of("aarch64-unknown-linux-gnu", "generic", "+neon"))
    assert not converts_halves(restricted_target("f16c"))
