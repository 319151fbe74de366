"""Train the demo's network on scikit-learn's bundled handwritten digits, in plain numpy, and write it as ONNX.

    python examples/digits/train_digits.py          needs scikit-learn and onnxruntime: see the group "train"

The network is two convolutions and two dense layers. One fifth of the digits, drawn once with a fixed seed and the
same share of each class, is held out: nothing is chosen by looking at it, it is scored once, after training, by
onnxruntime on the written file. That accuracy stands in the model's metadata, and the held-out digits beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent
SEED = 20260
HELD_OUT_SHARE = 0.2
EPOCHS = 60
BATCH = 32
PEAK_RATE = 3e-3  # Adam's step size: rises over the first tenth, then falls to zero with a cosine
MAX_PIXEL = 16.0  # the digits' grey levels are 0 to 16

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True)
class Digits:
    """Images [n, 8, 8] with grey levels 0 to 16, and what they show."""

    images: np.ndarray
    labels: np.ndarray


def load(generator: np.random.Generator) -> tuple[Digits, Digits]:
    """Return the digits to train on and the held-out ones, with equal shares of each class."""
    digits = load_digits()
    held = np.zeros(len(digits.target), bool)
    for label in range(10):
        members = generator.permutation(np.flatnonzero(digits.target == label))
        held[members[: round(len(members) * HELD_OUT_SHARE)]] = True
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.int64)
    return Digits(images[~held], labels[~held]), Digits(images[held], labels[held])


def initial_parameters(generator: np.random.Generator) -> Parameters:
    """Draw weights with the variance that keeps activations after a Relu at constant scale; biases are zero."""
    shapes = {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "dense1": (64, 512), "dense2": (10, 64)}
    parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2.0 / np.prod(shape[1:]))
        parameters[f"{name}.weight"] = generator.normal(0, deviation, shape).astype(np.float32)
        parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return parameters


def patches(x: np.ndarray) -> np.ndarray:
    """Return the 3x3 surroundings of every pixel, zeros outside: [n, c, h, w] -> [n, h, w, c * 9]."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    n, channels, height, width = x.shape
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, height, width, channels * 9)


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the 3x3 convolution of ``x`` with padding 1: [n, c, h, w] -> [n, m, h, w]."""
    return (patches(x) @ weight.reshape(len(weight), -1).T + bias).transpose(0, 3, 1, 2)


def convolution_gradients(x: np.ndarray, weight: np.ndarray, upstream: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the gradients of a convolution with respect to its input, weight and bias."""
    flat = upstream.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    by_weight = (flat.T @ patches(x).reshape(len(flat), -1)).reshape(weight.shape)
    turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)  # a convolution's adjoint: the kernel turned by 180 degrees
    by_input = convolve(upstream, np.ascontiguousarray(turned), np.zeros(len(turned), np.float32))
    return by_input, by_weight, flat.sum(0)


def loss_gradients(parameters: Parameters, images: np.ndarray, labels: np.ndarray) -> tuple[float, Parameters]:
    """Return the mean cross-entropy of a batch and its gradient for each parameter."""
    p, gradients = parameters, {}
    x0 = images[:, None].astype(np.float32) / MAX_PIXEL
    a1 = np.maximum(convolve(x0, p["conv1.weight"], p["conv1.bias"]), 0)
    blocks = a1.reshape(len(x0), 16, 4, 2, 4, 2)
    x1 = blocks.max((3, 5))
    a2 = np.maximum(convolve(x1, p["conv2.weight"], p["conv2.bias"]), 0)
    x2 = a2.reshape(len(x0), -1)
    x3 = np.maximum(x2 @ p["dense1.weight"].T + p["dense1.bias"], 0)
    logits = x3 @ p["dense2.weight"].T + p["dense2.bias"]
    shifted = logits - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))

    upstream = np.exp(log_probabilities)
    upstream[rows, labels] -= 1
    upstream /= len(labels)
    gradients["dense2.weight"], gradients["dense2.bias"] = upstream.T @ x3, upstream.sum(0)
    upstream = (upstream @ p["dense2.weight"]) * (x3 > 0)
    gradients["dense1.weight"], gradients["dense1.bias"] = upstream.T @ x2, upstream.sum(0)
    upstream = (upstream @ p["dense1.weight"]).reshape(a2.shape) * (a2 > 0)
    upstream, gradients["conv2.weight"], gradients["conv2.bias"] = convolution_gradients(
        x1, p["conv2.weight"], upstream
    )
    is_maximum = blocks == x1[:, :, :, None, :, None]
    upstream = (upstream[:, :, :, None, :, None] * is_maximum).reshape(a1.shape) * (a1 > 0)
    _, gradients["conv1.weight"], gradients["conv1.bias"] = convolution_gradients(x0, p["conv1.weight"], upstream)
    return float(-log_probabilities[rows, labels].mean()), gradients


def shift(images: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return each image moved by -1, 0 or 1 pixels both ways: a digit stays the digit it is."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    moved = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), (1, 2))
    down, right = generator.integers(0, 3, (2, len(images)))
    return moved[np.arange(len(images)), down, right]


def train(digits: Digits, generator: np.random.Generator) -> Parameters:
    """Minimize the cross-entropy with Adam over shifted batches."""
    parameters = initial_parameters(generator)
    mean = {name: np.zeros_like(value) for name, value in parameters.items()}
    square = {name: np.zeros_like(value) for name, value in parameters.items()}
    total = EPOCHS * (len(digits.labels) // BATCH)
    step = 0
    for epoch in range(EPOCHS):
        losses = []
        order = generator.permutation(len(digits.labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            step += 1
            chosen = order[start : start + BATCH]
            loss, gradients = loss_gradients(parameters, shift(digits.images[chosen], generator), digits.labels[chosen])
            losses.append(loss)
            rate = PEAK_RATE * min(step / (0.1 * total), 0.5 + 0.5 * np.cos(np.pi * step / total))
            for name, gradient in gradients.items():
                mean[name] += 0.1 * (gradient - mean[name])
                square[name] += 0.001 * (gradient**2 - square[name])
                scale = np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8
                parameters[name] = (parameters[name] - rate * mean[name] / (1 - 0.9**step) / scale).astype(np.float32)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3}: mean loss {np.mean(losses):.4f}")
    return parameters


def build_model(parameters: Parameters, metadata: dict[str, str]) -> onnx.ModelProto:
    """Return the network as an ONNX model: ``image`` [batch, 1, 8, 8] of grey levels to ``probabilities``."""
    constants = {"scale": np.float32(1 / MAX_PIXEL), **parameters}
    padding = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Mul", ["image", "scale"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "conv1.weight", "conv1.bias"], ["conv1"], **padding),
        helper.make_node("Relu", ["conv1"], ["relu1"]),
        helper.make_node("MaxPool", ["relu1"], ["pool1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pool1", "conv2.weight", "conv2.bias"], ["conv2"], **padding),
        helper.make_node("Relu", ["conv2"], ["relu2"]),
        helper.make_node("Flatten", ["relu2"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense1.weight", "dense1.bias"], ["dense1"], transB=1),
        helper.make_node("Relu", ["dense1"], ["relu3"]),
        helper.make_node("Gemm", ["relu3", "dense2.weight", "dense2.bias"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    for node in nodes:
        node.name = f"{node.output[0]}_{node.op_type}"
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        doc_string="Recognizes handwritten digits of 8 x 8 pixels with grey levels 0 to 16.",
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="train_digits.py"
    )
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return model


def score(model: onnx.ModelProto, digits: Digits) -> float:
    """Return the share of digits that onnxruntime recognizes with the model."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"image": digits.images[:, None].astype(np.float32)})
    return float((probabilities.argmax(1) == digits.labels).mean())


def main() -> None:
    """Train, score once on the held-out digits, and write the model and these digits."""
    generator = np.random.default_rng(SEED)
    training, held_out = load(generator)
    print(f"{len(training.labels)} digits to train on, {len(held_out.labels)} held out")
    parameters = train(training, generator)
    untold = build_model(parameters, {})
    accuracy = score(untold, held_out)
    print(f"accuracy: {score(untold, training):.2%} on the training digits, {accuracy:.2%} on the held-out digits")
    metadata = {
        "data": "sklearn.datasets.load_digits",
        "held_out_digits": str(len(held_out.labels)),
        "held_out_accuracy": f"{accuracy:.4f}",
    }
    onnx.save(build_model(parameters, metadata), HERE / "digits.onnx")
    np.savez_compressed(HERE / "held_out.npz", images=held_out.images, labels=held_out.labels.astype(np.uint8))
    for name in ("digits.onnx", "held_out.npz"):
        print(f"wrote {name}, {(HERE / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
