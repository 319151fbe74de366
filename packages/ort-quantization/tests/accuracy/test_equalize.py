"""Cross-layer equalization and bias correction: the float function stays, and a bad network loses less."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from float_models import Builder
from onnx import numpy_helper
from typer.testing import CliRunner

import ort_core
from ort_core.cli.app import build_app
from ort_quantization import QuantFormat, QuantType, quantize_static
from ort_quantization.accuracy.bias_correction import bias_corrected
from ort_quantization.accuracy.equalize import equalize_layers, equalized
from ort_quantization.calibration.sample_files import SampleReader
from ort_quantization.errors import InvalidCalibration

CHANNELS = 16


def bad_network(spread=3.0, has_bias=True):
    """A depthwise convolution between two pointwise ones, whose channels have ranges of very different sizes."""
    b = Builder()
    factors = np.exp2(b.random.uniform(-spread, spread, CHANNELS)).astype(np.float32)

    def weight(name, shape, ways):
        values = b.random.normal(size=shape).astype(np.float32)
        return b.constant(name, values * ways.reshape([-1 if size == CHANNELS else 1 for size in ways.shape]))

    first = b.random.normal(size=(CHANNELS, 3, 1, 1)).astype(np.float32) * factors[:, None, None, None]
    middle = b.random.normal(size=(CHANNELS, 1, 3, 3)).astype(np.float32) / np.roll(factors, 3)[:, None, None, None]
    last = b.random.normal(size=(8, CHANNELS, 1, 1)).astype(np.float32) * (np.roll(factors, 3) / factors)[:, None, None]
    names = [b.constant(f"w{place}", each) for place, each in enumerate((first, middle, last))]
    biases = [[b.weight(f"b{place}", size)] if has_bias else [] for place, size in enumerate((CHANNELS, CHANNELS, 8))]
    hidden = b.node("Conv", ["x", names[0], *biases[0]], "c0")
    hidden = b.node("Relu", [hidden], "r0")
    hidden = b.node("Conv", [hidden, names[1], *biases[1]], "c1", group=CHANNELS, pads=[1, 1, 1, 1])
    hidden = b.node("Relu", [hidden], "r1")
    b.node("Conv", [hidden, names[2], *biases[2]], "y")
    return b.model({"x": ("n", 3, 8, 8)}, ["y"])


def samples_of(count=6, shape=(2, 3, 8, 8)):
    random = np.random.default_rng(5)
    return [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(count)]


def outputs(model, samples):
    if not isinstance(model, onnx.ModelProto):
        session = ort_core.InferenceSession(str(model))
        return np.concatenate([session.run(None, each)[0] for each in samples])
    truth = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([truth.run(None, each)[0] for each in samples])


def decibels(exact, found):
    return 10 * np.log10(np.square(exact, dtype=np.float64).sum() / np.square(exact - found, dtype=np.float64).sum())


def spread_of(model, name, axis=0):
    weight = next(numpy_helper.to_array(each) for each in model.graph.initializer if each.name == name)
    reach = np.abs(np.moveaxis(weight, axis, 0)).reshape(weight.shape[axis], -1).max(axis=1)
    return reach.max() / reach.min()


def test_equalization_changes_no_result_of_the_float_model():
    model = bad_network()
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    pairs = equalized(changed)
    assert pairs == [("Conv_0", "Conv_2"), ("Conv_2", "Conv_4")]
    np.testing.assert_array_equal(outputs(changed, samples_of()), outputs(model, samples_of()))
    for name in ("w0", "w1"):
        assert spread_of(changed, name) < spread_of(model, name) / 4


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_equalization_helps_a_depthwise_network_of_one_scale_a_tensor(tmp_path, form):
    model, samples = bad_network(), samples_of()
    onnx.save(model, tmp_path / "float.onnx")
    exact = outputs(model, samples)
    found = []
    for has_step in (False, True):
        quantize_static(
            tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples), form,
            activation_type=QuantType.QUInt8, extra_options={"CrossLayerEqualization": has_step},
        )  # fmt: skip
        found.append(decibels(exact, outputs(tmp_path / "small.onnx", samples)))
    assert found[1] > found[0] + 6, found


def linear_pair(first, second, between=()):
    b = Builder()
    operators = {
        "Gemm": lambda x, name, turned: b.node("Gemm", [x, b.weight(name, *((6, 8) if turned else (8, 6))),
                                                        b.weight(name + "b", 6)], name + "y",
                                               transB=int(turned)),
        "MatMul": lambda x, name, turned: b.node("MatMul", [x, b.weight(name, 8, 6)], name + "y"),
    }  # fmt: skip
    hidden = operators[first]("x", "w", True)
    for op_type in between:
        hidden = b.node(op_type, [hidden], f"{op_type}_y")
    if second == "Gemm":
        b.node("Gemm", [hidden, b.weight("v", 6, 4), b.weight("vb", 4)], "y")
    else:
        b.node("MatMul", [hidden, b.weight("v", 6, 4)], "y")
    model = b.model({"x": (3, 8)}, ["y"])
    for tensor in model.graph.initializer:
        if tensor.name == "v":
            values = numpy_helper.to_array(tensor) * np.exp2(np.arange(6))[:, None].astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, "v"))
    return model


@pytest.mark.parametrize(
    ("first", "second", "between", "is_pair"),
    [
        ("Gemm", "Gemm", ["Relu"], True),
        ("MatMul", "MatMul", [], True),
        ("Gemm", "MatMul", ["LeakyRelu", "Identity"], True),
        ("MatMul", "Gemm", ["Sigmoid"], False),
        ("Gemm", "Gemm", ["Softmax"], False),
    ],
)
def test_layers_are_paired_only_across_what_keeps_factors(first, second, between, is_pair):
    model = linear_pair(first, second, between)
    samples = samples_of(2, (3, 8))
    exact = outputs(model, samples)
    assert len(equalized(model)) == int(is_pair)
    np.testing.assert_array_equal(outputs(model, samples), exact)


def test_what_others_read_is_left_alone():
    b = Builder()
    shared = b.weight("w", 6, 6)
    hidden = b.node("MatMul", ["x", shared], "h")
    hidden = b.node("Relu", [hidden], "r")
    b.node("MatMul", [hidden, shared], "y")
    tied = b.model({"x": (2, 6)}, ["y"])
    b = Builder()
    hidden = b.node("MatMul", ["x", b.weight("w", 6, 6)], "h")
    b.node("MatMul", [hidden, b.weight("v", 6, 6)], "y")
    given = b.model({"x": (2, 6)}, ["y", "h"])
    for model in (tied, given):
        before = model.SerializeToString()
        assert equalized(model) == []
        assert model.SerializeToString() == before


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_groups_and_transposed_convolutions_keep_their_function(op_type):
    b = Builder()
    shape = (12, 2, 3, 3) if op_type == "Conv" else (4, 6, 3, 3)
    hidden = b.node(op_type, ["x", b.weight("w", *shape), b.weight("b", 12)], "h", group=2)
    hidden = b.node("MaxPool", [hidden], "p", kernel_shape=[2, 2])
    shape = (6, 4, 1, 1) if op_type == "Conv" else (12, 2, 1, 1)
    b.node(op_type, [hidden, b.weight("v", *shape)], "y", group=3)
    model = b.model({"x": (1, 4, 9, 9)}, ["y"])
    for tensor in model.graph.initializer:
        if tensor.name == "b":
            tensor.CopyFrom(numpy_helper.from_array(np.arange(12, dtype=np.float32), "b"))
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(64), "w"))
    samples = samples_of(2, (1, 4, 9, 9))
    exact = outputs(model, samples)
    assert len(equalized(model)) == 1
    np.testing.assert_array_equal(outputs(model, samples), exact)


def test_dead_channels_and_files_are_no_obstacle(tmp_path):
    model = bad_network()
    weight = next(each for each in model.graph.initializer if each.name == "w1")
    values = numpy_helper.to_array(weight).copy()
    values[3] = 0
    weight.CopyFrom(numpy_helper.from_array(values, "w1"))
    onnx.save(model, tmp_path / "float.onnx", save_as_external_data=True, location="w", size_threshold=0)
    assert len(equalize_layers(tmp_path / "float.onnx", tmp_path / "even.onnx")) == 2
    even, exact = (outputs(onnx.load(tmp_path / f"{name}.onnx"), samples_of()) for name in ("even", "float"))
    np.testing.assert_array_equal(even, exact)


# ---------------------------------------------------------------- bias correction


def shifted_network(kind):
    """Layers whose weights round badly to one scale a tensor, and whose inputs have a mean."""
    b = Builder()
    wide = b.random.normal(size=(8, 8)).astype(np.float32)
    wide[0, 0] = 60.0  # one large weight: the steps of all others are wide
    if kind.startswith("Conv"):
        has_bias = kind.endswith("bias")
        more = [b.weight("b", 8)] if has_bias else []
        b.node("Conv", ["x", b.constant("w", wide[..., None, None]), *more], "y")
    elif kind == "MatMul":
        b.node("MatMul", ["x", b.constant("w", wide)], "y")
    elif kind == "MatMul, Add":
        hidden = b.node("MatMul", ["x", b.constant("w", wide)], "h")
        b.node("Add", [hidden, b.weight("b", 8)], "y")
    else:
        b.node("Gemm", ["x", b.constant("w", wide), b.weight("b", 8)], "y", transB=1, beta=0.5)
    return b.model({"x": ("n", 8, 3, 3) if kind.startswith("Conv") else ("n", 8)}, ["y"])


@pytest.mark.parametrize("kind", ["Conv", "Conv, bias", "Gemm", "MatMul", "MatMul, Add"])
def test_bias_correction_takes_back_what_rounding_does_to_means(tmp_path, kind):
    model = shifted_network(kind)
    random = np.random.default_rng(7)
    shape = (64, 8, 3, 3) if kind.startswith("Conv") else (64, 8)
    samples = [{"x": (random.normal(size=shape) + 2).astype(np.float32)} for _ in range(4)]
    onnx.save(model, tmp_path / "float.onnx")
    exact = outputs(model, samples)
    axes = (0, 2, 3) if kind.startswith("Conv") else 0
    losses, noises = [], []
    for has_step in (False, True):
        quantize_static(
            tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples),
            activation_type=QuantType.QUInt16, weight_type=QuantType.QInt8,
            extra_options={"BiasCorrection": has_step, "WeightSymmetric": True},
        )  # fmt: skip
        found = outputs(tmp_path / "small.onnx", samples)
        losses.append(np.abs((found - exact).mean(axis=axes)).max())
        noises.append(decibels(exact, found))
    assert losses[1] < losses[0] / 10, losses
    assert noises[1] > noises[0] + 3, noises


def test_the_correction_is_the_mean_of_the_weights_error(tmp_path):
    model = shifted_network("Gemm")
    samples = [{"x": (np.random.default_rng(1).normal(size=(50, 8)) + 2).astype(np.float32)}]
    onnx.save(model, tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples))
    small = onnx.load(tmp_path / "small.onnx")
    _, added = bias_corrected(model, "", small, "", SampleReader(samples))
    tensors = {each.name: numpy_helper.to_array(each).astype(np.float64) for each in small.graph.initializer}
    rounded = (tensors["w_quantized"] - tensors["w_zero_point"]) * tensors["w_scale"]
    exact = next(numpy_helper.to_array(each) for each in model.graph.initializer if each.name == "w")
    expected = (exact - rounded) @ samples[0]["x"].mean(axis=0)
    np.testing.assert_allclose(added["Gemm_0"], expected, rtol=1e-4, atol=1e-5)


def test_products_whose_bias_was_added_behind_them_are_quantized_as_without(tmp_path):
    onnx.save(shifted_network("MatMul"), tmp_path / "float.onnx")
    counts = []
    for has_step in (False, True):
        quantize_static(
            tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples_of(2, (4, 8))),
            QuantFormat.QOperator, activation_type=QuantType.QUInt8, extra_options={"BiasCorrection": has_step},
        )  # fmt: skip
        counts.append([node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node].count("QLinearMatMul"))
    assert counts == [1, 1]


def row_of_products(seed: int) -> onnx.ModelProto:
    """Three products without a bias."""
    b = Builder()
    b.random = np.random.default_rng(seed)
    value = "x"
    for name, size in (("w", 8), ("v", 8)):
        value = b.node("Relu", [b.node("MatMul", [value, b.weight(name, 8, size)], f"{name}_p")], f"{name}_r")
    b.node("MatMul", [value, b.weight("u", 8, 4)], "y")
    return b.model({"x": ("n", 8)}, ["y"])


@pytest.mark.parametrize(("seed", "is_kept"), [(5, True), (10, False)])
def test_biases_are_corrected_only_where_the_results_lose_less(tmp_path, caplog, seed, is_kept):
    samples = [{"x": np.random.default_rng(seed + 99).normal(size=(16, 8)).astype(np.float32) + 1}]
    files = []
    for has_step in (False, True):
        quantize_static(
            row_of_products(seed), tmp_path / "small.onnx", SampleReader(samples), activation_type=QuantType.QUInt8,
            extra_options={"BiasCorrection": has_step},
        )  # fmt: skip
        files.append(onnx.load(tmp_path / "small.onnx"))
    counts = [[node.op_type for node in each.graph.node].count("Add") for each in files]
    assert counts == [0, 3 if is_kept else 0]
    assert ("biases are not corrected: the results would lose more" in caplog.text) != is_kept


def test_a_product_is_not_rounded_before_the_bias_that_was_added_to_it(tmp_path):
    samples = [{"x": np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32) + 1}]
    quantize_static(
        row_of_products(5), tmp_path / "small.onnx", SampleReader(samples), extra_options={"BiasCorrection": True}
    )
    graph = onnx.load(tmp_path / "small.onnx").graph
    products = {node.output[0] for node in graph.node if node.op_type == "MatMul"}
    assert products
    assert {node.op_type for node in graph.node if products.intersection(node.input)} == {"Add"}


def test_samples_without_numbers_leave_biases_numbers(tmp_path):
    model, samples = shifted_network("MatMul"), samples_of(2, (4, 8))
    quantize_static(model, tmp_path / "small.onnx", SampleReader(samples))
    broken = samples[0]["x"][:1].copy()
    broken[0, 0] = np.inf
    small = onnx.load(tmp_path / "small.onnx")
    found = [
        bias_corrected(model, "", small, "", SampleReader(given))[1]
        for given in (samples, [*samples, {"x": broken}])
    ]  # fmt: skip
    assert found[0]
    for name, added in found[0].items():
        np.testing.assert_array_equal(added, found[1][name])


def test_biases_that_others_read_are_left_alone(tmp_path):
    b = Builder()
    bias = b.weight("b", 8)
    hidden = b.node("Gemm", ["x", b.weight("w", 8, 8), bias], "h")
    b.node("Gemm", [hidden, b.weight("v", 8, 8), bias], "y")
    model = b.model({"x": (2, 8)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    samples = samples_of(2, (2, 8))
    quantize_static(tmp_path / "float.onnx", tmp_path / "small.onnx", SampleReader(samples))
    found, added = bias_corrected(model, "", onnx.load(tmp_path / "small.onnx"), "", SampleReader(samples))
    assert added == {}
    assert found.SerializeToString() == model.SerializeToString()


def test_bias_correction_without_samples_is_refused(tmp_path):
    onnx.save(bad_network(), tmp_path / "float.onnx")
    with pytest.raises(InvalidCalibration, match="BiasCorrection needs samples"):
        quantize_static(tmp_path / "float.onnx", tmp_path / "small.onnx", extra_options={"BiasCorrection": True})


def test_both_steps_help_from_the_command_line(tmp_path):
    model, samples = bad_network(), samples_of()
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "data").mkdir()
    for place, sample in enumerate(samples):
        np.savez(tmp_path / f"data/{place}.npz", **sample)
    exact, found = outputs(model, samples), []
    for choices in ([], ["--equalize"], ["--equalize", "--correct-bias"]):
        arguments = ["quantize", tmp_path / "net.onnx", "--data", tmp_path / "data", *choices]
        done = CliRunner().invoke(build_app(), [str(each) for each in arguments])
        assert done.exit_code == 0, done.output
        found.append(decibels(exact, outputs(tmp_path / "net.quantized.onnx", samples)))
    assert found[1] > found[0] + 6, found
    assert found[2] > found[1] - 0.5, found
