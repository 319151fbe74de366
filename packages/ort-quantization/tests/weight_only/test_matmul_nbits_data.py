"""GPTQ and AWQ: what runs of a model show makes its quantized outputs better, and bad data is named."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, ValueInfoProto, numpy_helper, parser
from onnxruntime.quantization.neural_compressor import weight_only

import ort_core
from ort_quantization import matmul_nbits_quantizer
from ort_quantization.calibration.activation_capture import Samples, captured
from ort_quantization.errors import InvalidCalibration
from ort_quantization.matmul_nbits_quantizer import (
    AWQWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    NVAWQWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from ort_quantization.weight_only.factors_in_place import factor_in_place, invert_in_place
from ort_quantization.weight_only.matmul_nbits_awq import output_error
from ort_quantization.weight_only.matmul_nbits_gptq import GptqSettings, RowErrors, gptq, inverse_factor
from ort_quantization.weight_only.matmul_nbits_rounding import round_to_nearest
from ort_quantization.weight_only.matmul_nbits_statistics import OperandState

CHANNELS = 64
TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n, 64] x) => (float[n, 16] y, float[n, 64] u) {
    a = LayerNormalization(x, gain, shift)
    q = MatMul(a, w) k = MatMul(a, v)
    s = Add(q, k) r = Relu(s) u = Mul(r, two)
    y = MatMul(u, o)
}"""


def model() -> ModelProto:
    """Two products of one normalized value, then one of a value that is an output, too."""
    random = np.random.default_rng(0)
    found = parser.parse_model(TEXT)
    arrays = {
        "gain": np.exp(random.normal(size=CHANNELS) * 1.2), "shift": random.normal(size=CHANNELS) / 4,
        "w": random.normal(size=(CHANNELS, CHANNELS)) / 8, "v": random.normal(size=(CHANNELS, CHANNELS)) / 8,
        "o": random.normal(size=(CHANNELS, 16)) / 8, "two": np.full(CHANNELS, 2.0),
    }  # fmt: skip
    for name, value in arrays.items():
        found.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    return found


class Reader:
    """Gives samples once."""

    def __init__(self, samples: Iterable[object]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self._samples, None)  # type: ignore[arg-type]  # some tests give what is no sample


def samples(count: int = 6, seed: int = 1) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(CHANNELS, CHANNELS)) / 8  # channels that depend on each other, as those of networks do
    return [{"x": (random.normal(size=(32, CHANNELS)) @ mixed).astype(np.float32)} for _ in range(count)]


def run(proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else QDQ gets int8 operands
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def errors_of(hessian: np.ndarray) -> RowErrors:
    return RowErrors.of_hessian(hessian, 0.01, has_order=False)


def error_of(config: WeightOnlyQuantConfig, bits: int = 4) -> float:
    """Return the relative error of the outputs on samples that the method did not see."""
    quantizer = MatMulNBitsQuantizer(model(), bits=bits, block_size=32, algo_config=config)
    quantizer.process()
    small = quantizer.model.model
    onnx.checker.check_model(small)
    feeds = {"x": np.concatenate([each["x"] for each in samples(12)[6:]])}
    want, got = run(model(), feeds), run(small, feeds)
    ours = ort_core.InferenceSession(small.SerializeToString()).run(None, feeds)
    for mine, other in zip(ours, got, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)
    return float(np.linalg.norm(got[0] - want[0]) / np.linalg.norm(want[0]))


METHODS: dict[str, Callable[[Reader], WeightOnlyQuantConfig]] = {
    "gptq": lambda reader: GPTQWeightOnlyQuantConfig(reader),
    "gptq ordered": lambda reader: GPTQWeightOnlyQuantConfig(reader, actorder=True),
    "gptq with float zero points": lambda reader: GPTQWeightOnlyQuantConfig(reader, mse=True, real_zero_points=True),
    "gptq searched": lambda reader: GPTQWeightOnlyQuantConfig(reader, mse=True),
    "awq scales": lambda reader: AWQWeightOnlyQuantConfig(reader),
    "awq ranges": lambda reader: AWQWeightOnlyQuantConfig(reader, "awq_clip"),
    "awq both": lambda reader: AWQWeightOnlyQuantConfig(reader, "awq_full"),
    "awq by onnxruntime's name": lambda reader: NVAWQWeightOnlyQuantConfig(calibration_data_reader=reader),
}


def branching() -> ModelProto:
    """Return a model with products in a branch, one of a value of the branch, one of a value around."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[n, 64] x) => (float[n, 64] y) {
            t = Relu(x)
            y = If(c) <then_branch = then () => (float[n, 64] p) {
                          a = Mul(t, sizes) [inside] b = MatMul(a, w) d = MatMul(t, w) p = Add(b, d) },
                       else_branch = other () => (float[n, 64] q) { a = Neg(t) q = MatMul(a, w) }>
        }""")
    random = np.random.default_rng(9)
    weight = (random.normal(size=(64, 64)) / 8).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    sizes = np.exp(random.normal(size=64) * 1.5).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(sizes, "sizes"))
    return proto


def turning() -> ModelProto:
    """Return a model whose products lie in a Loop, and in a Scan: each turn multiplies what the one before gave."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (int64 turns, float[n, 64] x) => (float[n, 64] y, float[k, 64] z) {
            y = Loop(turns, , x) <body = turn (int64 i, bool go, float[n, 64] s) => (bool on, float[n, 64] e) {
                on = Identity(go) a = Mul(s, sizes) m = MatMul(a, w) e = Tanh(m) }>
            start = ReduceMean <keepdims = 0> (x, axes)
            last, z = Scan <num_scan_inputs = 1, body = step (float[64] h, float[64] r) => (float[64] g, float[64] o) {
                f = Add(h, r) j = Unsqueeze(f, axes) u = Mul(j, sizes) v = MatMul(u, w) o = Squeeze(v, axes)
                g = Tanh(o) }> (start, x)
        }""")
    proto.graph.initializer.extend(branching().graph.initializer)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    return proto


@pytest.mark.parametrize("kind", ["If", "Loop and Scan"])
@pytest.mark.parametrize("method", ["gptq", "awq both"])
def test_operands_inside_bodies_are_seen(kind: str, method: str, caplog: pytest.LogCaptureFixture) -> None:
    proto = branching() if kind == "If" else turning()
    more = [{"c": np.array(place % 2 == 0)} if kind == "If" else {"turns": np.array(2)} for place in range(12)]
    data = [{**first, **each} for first, each in zip(more, samples(12), strict=True)]
    before = proto.SerializeToString()
    errors = {}
    for config in (RTNWeightOnlyQuantConfig(), METHODS[method](Reader(data[:6]))):
        quantizer = MatMulNBitsQuantizer(ModelProto.FromString(before), block_size=32, algo_config=config)
        quantizer.process()
        small = quantizer.model.model
        onnx.checker.check_model(small)
        pairs = [
            (got, want) for each in data[6:8] for got, want in zip(run(small, each), run(proto, each), strict=True)
        ]
        errors[config.algorithm] = sum(float(((got - want) ** 2).sum()) for got, want in pairs)
        for mine, other in zip(
            ort_core.InferenceSession(small.SerializeToString()).run(None, data[6]), run(small, data[6])
        ):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)
    assert "rounded to nearest" not in caplog.text
    assert errors.pop("RTN") > 1.2 * max(errors.values())


@pytest.mark.parametrize("method", ["gptq", "awq scales"])
def test_a_weight_that_two_products_multiply_with_one_value_is_quantized_once(method: str) -> None:
    proto = model()
    proto.graph.node[2].input[1] = "w"  # k = MatMul(a, w), as q is
    want = run(proto, samples()[0])
    quantizer = MatMulNBitsQuantizer(proto, block_size=32, algo_config=METHODS[method](Reader(samples())))
    quantizer.process()
    names = [each.name for each in quantizer.model.model.graph.initializer]
    assert len([name for name in names if name.startswith("w_Q4")]) == 1
    for got, exact in zip(run(quantizer.model.model, samples()[0]), want, strict=True):
        assert np.linalg.norm(got - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.parametrize("method", ["gptq", "awq scales"])
def test_nodes_with_settings_of_their_own_share_an_operand(method: str) -> None:
    proto = model()
    proto.graph.node[2].input[1] = "w"
    proto.graph.node[1].name, proto.graph.node[2].name = "first", "second"
    want = run(proto, samples()[0])
    config = METHODS[method](Reader(samples()))
    config.customized_weight_config = {"second": {"bits": 8}}
    quantizer = MatMulNBitsQuantizer(proto, block_size=32, algo_config=config)
    quantizer.process()
    bits = [each.i for node in quantizer.model.model.graph.node for each in node.attribute if each.name == "bits"]
    assert sorted(bits) == [4, 4, 8]
    for got, exact in zip(run(quantizer.model.model, samples()[0]), want, strict=True):
        assert np.linalg.norm(got - exact) < 0.1 * np.linalg.norm(exact)


@pytest.fixture(scope="module")
def rounded() -> float:
    """The error of rounding to nearest."""
    return error_of(RTNWeightOnlyQuantConfig())


@pytest.mark.parametrize("method", METHODS)
def test_data_lessens_the_error_of_rounding(method: str, rounded: float) -> None:
    assert error_of(METHODS[method](Reader(samples()))) < 0.97 * rounded


def test_scales_go_into_the_normalization_where_nobody_else_reads_its_value() -> None:
    quantizer = MatMulNBitsQuantizer(model(), block_size=32, algo_config=AWQWeightOnlyQuantConfig(Reader(samples())))
    quantizer.process()
    graph = quantizer.model.model.graph
    operators = [node.op_type for node in graph.node]
    # u is an output of the model: it stays, and its product reads a scaled copy
    assert operators in (
        ["LayerNormalization", "MatMulNBits", "MatMulNBits", "Add", "Relu", "Mul", "Mul", "MatMulNBits"],
        ["LayerNormalization", "MatMulNBits", "MatMulNBits", "Add", "Relu", "Mul", "MatMulNBits"],
    )
    assert list(graph.node[0].input)[1:] == ["gain_smoothed", "shift_smoothed"]
    np.testing.assert_allclose(run(quantizer.model.model, samples()[0])[1], run(model(), samples()[0])[1], atol=2.0)


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(("rows", "block_size", "at_once"), [(64, 32, 128), (70, 32, 16), (64, 64, 48), (48, 16, 32)])
def test_rows_make_up_for_what_earlier_rows_lost(is_symmetric: bool, rows: int, block_size: int, at_once: int) -> None:
    random = np.random.default_rng(rows)
    weight = random.normal(size=(rows, 12)).astype(np.float32)
    operand = random.normal(size=(400, rows)) @ (random.normal(size=(rows, rows)) / 8)
    hessian = operand.T @ operand / 400
    kept = gptq(
        weight, errors_of(hessian), GptqSettings(4, block_size, is_symmetric, rows_at_once=at_once)
    ).dequantized()
    plain = round_to_nearest(weight, 4, block_size, is_symmetric).dequantized()
    assert output_error(weight, kept, hessian) < 0.8 * output_error(weight, plain, hessian)
    one_by_one = gptq(
        weight, errors_of(hessian), GptqSettings(4, block_size, is_symmetric, rows_at_once=1)
    ).dequantized()
    np.testing.assert_allclose(kept, one_by_one, atol=1e-5)


def test_the_error_is_below_that_of_onnxruntimes_function() -> None:
    """That function reads the factor's lower half, which is zero: what rows lose reaches no other row."""
    random = np.random.default_rng(7)
    weight = random.normal(size=(128, 24)).astype(np.float32)
    operand = random.normal(size=(600, 128)) @ (random.normal(size=(128, 128)) / 11)
    hessian = operand.T @ operand / 600
    theirs = weight_only.gptq(weight.copy(), hessian.copy(), group_size=32, blocksize=32)
    ours = gptq(weight, errors_of(hessian), GptqSettings(4, 32, False, rows_at_once=32)).dequantized()
    assert output_error(weight, ours, hessian) < 0.8 * output_error(weight, theirs, hessian)


def test_a_hessian_without_an_inverse_gets_one() -> None:
    vector = np.ones((1, 8))
    factor = inverse_factor(vector.T @ vector, 0.01)
    assert np.isfinite(factor).all()
    np.testing.assert_array_equal(factor, np.triu(factor))
    assert np.isfinite(inverse_factor(np.zeros((8, 8)), 0.01)).all()


def test_channels_that_no_sample_uses_cost_nothing() -> None:
    random = np.random.default_rng(8)
    weight = random.normal(size=(32, 6)).astype(np.float32)
    operand = random.normal(size=(100, 32))
    operand[:, 5] = 0
    kept = gptq(weight, errors_of(operand.T @ operand), GptqSettings(4, 32, False)).dequantized()
    assert np.abs(operand @ (kept - weight)).max() < np.abs(operand @ weight).max() / 4


def test_captured_values_are_those_of_the_graph_and_the_model_is_left_alone() -> None:
    proto = model()
    before = proto.SerializeToString()
    inner = copy.deepcopy(proto)
    inner.graph.output.extend([ValueInfoProto(name="r")])
    with Samples(Reader(samples(3))) as data:
        for _ in range(2):  # a reader is read once, its samples as often as needed
            found = list(captured(proto, "", ["x", "r"], iter(data)))
            assert len(found) == 3
            for sample, values in zip(samples(3), found, strict=True):
                np.testing.assert_array_equal(values["x"], sample["x"])
                np.testing.assert_allclose(values["r"], run(inner, sample)[-1], rtol=1e-4, atol=1e-5)
    assert proto.SerializeToString() == before


def test_sums_over_samples_are_those_of_all_rows_together() -> None:
    state = OperandState.of_channels(5)
    parts = [np.random.default_rng(seed).normal(size=(2, 3, 5)).astype(np.float32) for seed in range(4)]
    for part in parts:
        state.add("a", part)
    whole = np.concatenate(parts).reshape(-1, 5).astype(np.float64)
    np.testing.assert_allclose(state.hessian, whole.T @ whole / len(whole), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.mean_sizes, np.abs(whole).mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("method", ["gptq", "awq both"])
def test_as_many_passes_as_memory_asks_for_give_the_same_model(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for limit in (1 << 30, 1):
        monkeypatch.setattr(matmul_nbits_quantizer, "STATISTICS_NBYTES", limit)
        quantizer = MatMulNBitsQuantizer(model(), block_size=32, algo_config=METHODS[method](Reader(samples())))
        quantizer.process()
        found.append(quantizer.model.model)
    assert len(found[0].graph.initializer) > 9
    for one, other in zip(found[0].graph.initializer, found[1].graph.initializer, strict=True):
        a, b = numpy_helper.to_array(one), numpy_helper.to_array(other)
        assert np.mean(a != b) < 0.02, one.name  # engines may add in another order where other values are asked for


def test_a_model_in_files_is_captured_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(model(), path, save_as_external_data=True, location="weights", size_threshold=0)
    quantizer = MatMulNBitsQuantizer(str(path), block_size=32, algo_config=METHODS["gptq"](Reader(samples())))
    quantizer.process()
    whole = MatMulNBitsQuantizer(model(), block_size=32, algo_config=METHODS["gptq"](Reader(samples())))
    whole.process()
    want = {each.name: numpy_helper.to_array(each) for each in whole.model.model.graph.initializer}
    for tensor in quantizer.model.model.graph.initializer:
        assert np.mean(numpy_helper.to_array(tensor) != want[tensor.name]) < 0.02, tensor.name


def test_products_that_no_run_shows_are_rounded(caplog: pytest.LogCaptureFixture) -> None:
    proto = branching()
    data = [{"c": np.array(False), **each} for each in samples()]
    quantizer = MatMulNBitsQuantizer(proto, block_size=32, algo_config=METHODS["gptq"](Reader(data)))
    quantizer.process()
    assert "no run shows the operand 'a' of node 'inside'" in caplog.text
    assert run(quantizer.model.model, data[0])[0].shape == data[0]["x"].shape


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "no sample"),
        ([np.zeros(3)], "ndarray"),
        ([{"x": np.full((2, CHANNELS), np.nan, np.float32)}], "NaN"),
        ([{"x": np.zeros((0, CHANNELS), np.float32)}], "no sample shows"),
    ],
)
def test_bad_data_is_named(data: list[object], text: str) -> None:
    with pytest.raises(InvalidCalibration, match=text):
        MatMulNBitsQuantizer(model(), block_size=32, algo_config=METHODS["gptq"](Reader(data))).process()


def test_methods_that_need_data_say_so() -> None:
    for config in (GPTQWeightOnlyQuantConfig(), NVAWQWeightOnlyQuantConfig("folder")):
        with pytest.raises(InvalidCalibration, match="calibration_data_reader"):
            MatMulNBitsQuantizer(model(), block_size=32, algo_config=config).process()


def test_what_a_reader_raises_is_told_with_the_sample() -> None:
    class Broken(Reader):
        def get_next(self) -> None:
            raise KeyError("no such file of samples")

    with pytest.raises(InvalidCalibration, match=r"KeyError at sample 0.*no such file"):
        MatMulNBitsQuantizer(model(), block_size=32, algo_config=METHODS["gptq"](Broken([]))).process()


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1100])
def test_factors_in_place_are_those_of_numpy(size: int) -> None:
    values = np.random.default_rng(0).normal(size=(size, size + 8))
    hessian = values @ values.T / size + np.eye(size)
    factor = np.array(hessian)
    factor_in_place(factor)
    np.testing.assert_allclose(factor, np.linalg.cholesky(hessian), rtol=0, atol=1e-12 * size)
    invert_in_place(factor)
    np.testing.assert_allclose(factor, np.linalg.inv(np.linalg.cholesky(hessian)), rtol=0, atol=1e-12 * size)
    found = inverse_factor(hessian, 0.0)
    np.testing.assert_allclose(found.T @ found, np.linalg.inv(hessian), rtol=0, atol=1e-6)


def test_gptq_takes_few_matrices_of_the_size_of_its_statistics() -> None:
    size = 1536
    values = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    hessian = (values @ values.T).astype(np.float64) / size
    tracemalloc.start()
    RowErrors.of_hessian(hessian, 0.01, has_order=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.2 * hessian.nbytes, "one copy, the float32 factor, and a block of columns"
