"""ChannelProducts: products over channels run as convolutions where both Transposes around them go."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from pass_check import context_of, evaluate_with_onnxruntime, model_of, op_types

import ort_core as ort
from ort_core.cpu.fusions.channel_products import MIN_POSITIONS, ChannelProducts
from ort_core.ir.model import Model
from ort_core.onnx_io.save import model_to_bytes

TO, BACK = "Transpose<perm=[0,2,3,1]>", "Transpose<perm=[0,3,1,2]>"
NUMBERS = np.random.default_rng(3)
WEIGHTS = ", ".join(f"{each:.3f}" for each in NUMBERS.standard_normal(12))
HEAD = (
    "g (float[N,3,%s] x) => (float[] y) <float[3,4] w = {" + WEIGHTS + "}, float[4,3] v = {" + WEIGHTS + "},"
    " float[3,33] wide = {" + ", ".join(["0.5"] * 99) + "}, float[4] b = {0.5, -1.0, 2.0, 0.25}> { %s }"
)
FORMS = {
    "one": ("5,4", f"t = {TO}(x)  p = MatMul(t, w)  y = {BACK}(p)", ["Conv"]),
    "with a bias": ("5,4", f"t = {TO}(x)  p = MatMul(t, w)  s = Add(p, b)  y = {BACK}(s)", ["Conv", "Add"]),
    "two": (
        "5,4",
        f"t = {TO}(x)  p = MatMul(t, w)  s = Add(b, p)  r = Softmax<axis=-1>(s)  q = MatMul(r, v)  y = {BACK}(q)",
        ["Conv", "Add", "Softmax", "Conv"],
    ),
    "rows": (
        "20", "t = Transpose<perm=[0,2,1]>(x)  p = MatMul(t, w)  r = Relu(p)  y = Transpose<perm=[0,2,1]>(r)",
        ["Conv", "Relu"],
    ),
    "volumes": (
        "2,3,4",
        "t = Transpose<perm=[0,2,3,4,1]>(x)  p = MatMul(t, w)  y = Transpose<perm=[0,4,1,2,3]>(p)", ["Conv"],
    ),
    "a reader of the product": (
        "5,4", f"t = {TO}(x)  p = MatMul(t, w)  q = {BACK}(p)  r = Relu(p)  s = {BACK}(r)  y = Add(q, s)",
        ["Conv", "Relu", "Add"],
    ),
}  # fmt: skip
LEFT = {
    "no way back": ("5,4", f"t = {TO}(x)  y = MatMul(t, w)"),
    "few positions": ("5,3", f"t = {TO}(x)  p = MatMul(t, w)  y = {BACK}(p)"),
    "positions of the run": ("H,4", f"t = {TO}(x)  p = MatMul(t, w)  y = {BACK}(p)"),
    "another axis": ("3,9", "t = Transpose<perm=[0,1,3,2]>(x)  p = MatMul(t, w)  y = Transpose<perm=[0,1,3,2]>(p)"),
    "other order": ("5,4", f"t = Transpose<perm=[0,3,2,1]>(x)  p = MatMul(t, w)  y = {BACK}(p)"),
    "many channels": ("5,4", f"t = {TO}(x)  p = MatMul(t, wide)  y = {BACK}(p)"),
    "weights of the run": ("5,4", f"u = Exp(w)  t = {TO}(x)  p = MatMul(t, u)  y = {BACK}(p)"),
}


def passed(body: tuple[str, str]) -> tuple[Model, Model]:
    """Return a model, and what the pass makes of it."""
    before, after = model_of(HEAD % body), model_of(HEAD % body)
    ChannelProducts().run(context_of(after))
    return before, after


def image(model: Model) -> np.ndarray:
    value = model.graph.inputs[0]
    return NUMBERS.standard_normal([each if isinstance(each, int) else 2 for each in value.shape]).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_products_between_transposes_become_convolutions(form: str) -> None:
    *body, expected = FORMS[form]
    before, after = passed(tuple(body))
    assert op_types(after) == expected
    x = {"x": image(before)}
    (wanted,) = evaluate_with_onnxruntime(before, x)
    (found,) = evaluate_with_onnxruntime(after, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    (own,) = ort.InferenceSession(model_to_bytes(before), providers=["CPUExecutionProvider"]).run(None, x)
    np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", LEFT)
def test_what_saves_no_transpose_or_is_another_product_stays(form: str) -> None:
    before, after = passed(LEFT[form])
    assert op_types(after) == op_types(before)


def test_an_initializer_that_may_be_fed_stays_a_factor() -> None:
    proto = onnx.load_from_string(model_to_bytes(model_of(HEAD % FORMS["one"][:2])))
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [3, 4]))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x, w = NUMBERS.standard_normal((1, 3, 5, 4)).astype(np.float32), np.eye(3, 4, dtype=np.float32)
    (found,) = session.run(None, {"x": x, "w": w})
    np.testing.assert_allclose(found, np.einsum("nchw,cd->ndhw", x, w), rtol=1e-5, atol=1e-5)


def test_sizes_at_the_limit_are_taken() -> None:
    assert op_types(passed((f"{MIN_POSITIONS},1", FORMS["one"][1]))[1]) == ["Conv"]
