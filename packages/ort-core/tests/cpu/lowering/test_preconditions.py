"""Ranks and sizes that operators require: what breaks them is refused, by name, by kernels and by compiled code alike.

Sizes are symbolic, so that only the run knows of them; the same session runs sizes that fit before and after.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import InvalidArgument
from ort_core.tolerances import compare

Arrays = dict[str, np.ndarray]
QUANTIZED = {"as": np.array([0.1], np.float32), "bs": np.array([0.2], np.float32), "cs": np.array([0.3], np.float32)}


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[str, Arrays, Arrays, str]] = {
    "bias of a convolution": (
        "(float[N, C, H, W] x, float[M, D, K, L] w, float[B] b) => (float[a, e, f, g] y) { y = Conv(x, w, b) }",
        {"x": floats(1, 2, 6, 6), "w": floats(4, 2, 3, 3), "b": floats(4)},
        {"b": floats(1)},
        "bias must be a 1D tensor of size output_channels",
    ),
    "channels of pooling": (
        "(float[N, C, H, W] x) => (float[a, b, c, d] y) { y = MaxPool<kernel_shape = [2, 2]>(x) }",
        {"x": floats(1, 3, 6, 6)},
        {"x": floats(1, 0, 6, 6)},
        "only N can be zero",
    ),
    "weights of a recurrent layer": (
        "(float[S, B, I] x, float[D, G, J] w, float[E, F, H] r) => (float[a, b, c, d] y) "
        "{ y = LSTM<hidden_size = 4>(x, w, r) }",
        {"x": floats(3, 2, 5), "w": floats(1, 16, 5), "r": floats(1, 16, 4)},
        {"w": floats(1, 20, 5)},
        "Input W must have shape",
    ),
    "batches of attention": (
        "(float[N, H, S, D] q, float[M, I, T, E] k, float[L, J, U, F] v) => (float[a, b, c, d] y) "
        "{ y = Attention(q, k, v) }",
        {"q": floats(2, 2, 3, 4), "k": floats(2, 2, 5, 4), "v": floats(2, 2, 5, 4)},
        {"k": floats(1, 2, 5, 4)},
        "inconsistent batch_size",
    ),
    "bias of a GELU": (
        "(float[N, C] x, float[D] b) => (float[a, c] y) { y = com.microsoft.BiasGelu(x, b) }",
        {"x": floats(3, 4), "b": floats(4)},
        {"b": floats(1)},
        "Input bias must have shape",
    ),
    "caches of a rotation": (
        "(float[N, S, H] x, int64[M, T] p, float[L, D] c, float[K, E] s) => (float[a, b, d] y) "
        "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }",
        {"x": floats(1, 2, 8), "p": np.array([[0, 1]]), "c": floats(4, 4), "s": floats(4, 4)},
        {"s": floats(5, 4)},
        "same shape",
    ),
}


@pytest.mark.parametrize("provider", ["Reference", "CPU"])
@pytest.mark.parametrize("name", CASES)
def test_shapes_that_break_a_precondition_are_refused(name: str, provider: str) -> None:
    text, good, broken, message = CASES[name]
    proto = parser.parse_model(f'<ir_version: 11, opset_import: ["": 23, "com.microsoft": 1]> broken {text}')
    session = ort.InferenceSession(proto.SerializeToString(), providers=[f"{provider}ExecutionProvider"])
    for _ in range(2):
        [before] = session.run(None, good)
        with pytest.raises(InvalidArgument, match=message):
            session.run(None, good | broken)
        comparison = compare(session.run(None, good)[0], before, "exact")
        assert comparison.passes, comparison


def test_radial_kernels_keep_the_digits_of_unscaled_features() -> None:
    vectors = np.random.default_rng(0).normal(1000, 300, (7, 13)).astype(np.float32)
    weights = np.linspace(-1, 1, 7, dtype=np.float32)
    attributes = (
        f'kernel_type = "RBF", n_supports = 7, kernel_params = [0.00001, 0.0, 3.0], rho = [0.5], '
        f"coefficients = {weights.tolist()}, support_vectors = {vectors.reshape(-1).tolist()}"
    )
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> svm (float[N, 13] x) => (float[N, 1] y) '
        f"{{ y = ai.onnx.ml.SVMRegressor<{attributes}>(x) }}"
    )
    x = vectors + np.float32(3)
    [found] = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    distances = np.square(x.astype(np.float64)[:, None] - vectors.astype(np.float64)[None]).sum(-1)
    expected = np.exp(-np.float32(0.00001) * distances) @ weights.astype(np.float64) + 0.5
    np.testing.assert_allclose(found[:, 0], expected, atol=3e-6)
