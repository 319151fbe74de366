"""Recurrent layers against onnxruntime over directions, lengths and parameters, and over types."""

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.recurrent.recurrent import gru, lstm, rnn

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2
LENGTHS = np.array([5, 1, 3], np.int32)
LAYERS = {"RNN": (rnn, 1), "GRU": (gru, 3), "LSTM": (lstm, 4)}


def draw(op_type, directions, seed=0):
    gates = LAYERS[op_type][1]
    generator = np.random.default_rng(seed)
    shapes = [
        (STEPS, BATCH, INPUTS),
        (directions, gates * HIDDEN, INPUTS),
        (directions, gates * HIDDEN, HIDDEN),
        (directions, 2 * gates * HIDDEN),
        (directions, BATCH, HIDDEN),
    ]
    if op_type == "LSTM":
        shapes += [(directions, BATCH, HIDDEN), (directions, 3 * HIDDEN)]
    x, w, r, b, *states = (generator.standard_normal(s).astype(np.float32) for s in shapes)
    return [x, w, r, b, LENGTHS, *states]


def compare(op_type, inputs, by_onnxruntime, opset=14, **attributes):
    outputs = 3 if op_type == "LSTM" else 2
    expected = by_onnxruntime(op_type, inputs, opset, outputs, hidden_size=HIDDEN, **attributes)
    results = LAYERS[op_type][0](*inputs, hidden_size=HIDDEN, **attributes)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op_type", LAYERS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_layer_walks_each_direction_and_length_as_onnxruntime_does(op_type, direction, by_onnxruntime):
    inputs = draw(op_type, 2 if direction == "bidirectional" else 1)
    compare(op_type, inputs, by_onnxruntime, direction=direction)
    inputs[4] = None
    compare(op_type, inputs, by_onnxruntime, direction=direction, clip=0.4)


@pytest.mark.parametrize("op_type", LAYERS)
def test_layer_needs_only_its_weights(op_type, by_onnxruntime):
    compare(op_type, draw(op_type, 1)[:3], by_onnxruntime)


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru_resets_before_or_after_the_product(linear_before_reset, by_onnxruntime):
    compare("GRU", draw("GRU", 1), by_onnxruntime, linear_before_reset=linear_before_reset)


def test_lstm_couples_forget_to_input(by_onnxruntime):
    compare("LSTM", draw("LSTM", 1)[:7], by_onnxruntime, input_forget=1)


@pytest.mark.parametrize(
    ("activations", "alphas", "betas"),
    [
        (["HardSigmoid", "Softsign", "Elu"], [0.3, 0.7], [0.4]),
        (["sigmoid", "LeakyRelu", "ScaledTanh"], [0.2, 1.5], [0.8]),
        (["Affine", "ThresholdedRelu", "Tanh"], [0.1, 0.2], [0.3]),
        (["HardSigmoid", "Relu", "Softplus"], [0.3], [0.4]),
    ],
)
def test_lstm_takes_parameters_of_its_activations_in_order(activations, alphas, betas, by_onnxruntime):
    inputs = draw("LSTM", 1)
    compare("LSTM", inputs, by_onnxruntime, activations=activations, activation_alpha=alphas, activation_beta=betas)


@pytest.mark.parametrize("op_type", LAYERS)
def test_layer_with_batch_first_is_the_transposed_layer(op_type):
    layer = LAYERS[op_type][0]
    x, w, r, b, lengths, *states = draw(op_type, 2)
    first = 2 if op_type == "LSTM" else 1
    turned = [s.swapaxes(0, 1) for s in states[:first]] + states[first:]
    y, *finals = layer(x, w, r, b, lengths, *states, direction="bidirectional")
    y1, *finals1 = layer(x.swapaxes(0, 1), w, r, b, lengths, *turned, direction="bidirectional", layout=1)
    np.testing.assert_array_equal(y1, y.transpose(2, 0, 1, 3))
    for final, final1 in zip(finals, finals1, strict=True):
        np.testing.assert_array_equal(final1, final.swapaxes(0, 1))


@pytest.mark.parametrize("op_type", LAYERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_layer_rounds_once_in_other_types(op_type, dtype):
    layer = LAYERS[op_type][0]
    inputs = [i if i.dtype == np.int32 else i.astype(dtype) for i in draw(op_type, 1)]
    wide = [i if i.dtype == np.int32 else i.astype(np.float64) for i in inputs]
    for result, wanted in zip(layer(*inputs), layer(*wide), strict=True):
        assert result.dtype == dtype
        eps = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=2 * eps, atol=eps)


@pytest.mark.parametrize("op_type", LAYERS)
def test_layer_without_steps_returns_its_initial_state(op_type):
    layer = LAYERS[op_type][0]
    x, w, r, b, _, h, *_ = draw(op_type, 1)
    y, final, *_ = layer(x[:0], w, r, b, None, h)
    assert y.shape == (0, 1, BATCH, HIDDEN)
    np.testing.assert_array_equal(final, h)


def test_layer_refuses_lengths_beyond_the_input():
    x, w, r, b, *_ = draw("RNN", 1)
    with pytest.raises(InvalidArgument, match="All values must be >= 0 and <= seq_length"):
        rnn(x, w, r, b, np.array([6, 1, 1], np.int32))
    with pytest.raises(InvalidArgument, match="unknown activation 'Sine'"):
        rnn(x, w, r, b, activations=("Sine",))
