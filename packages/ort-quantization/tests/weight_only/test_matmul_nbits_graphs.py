"""MatMulNBitsQuantizer on graphs as programs have them: shared weights, subgraphs, leading axes, files, choices."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper, parser

from ort_core.errors import NoSuchFile, OrtError
from ort_quantization.errors import InvalidQuantization
from ort_quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
)
from ort_quantization.quantized_types import QuantFormat
from ort_quantization.weight_only import matmul_nbits_data


def model_of(text: str, opset: int = 21, ir_version: int = 10, **weights: np.ndarray) -> ModelProto:
    """Return a model of a graph in ONNX text, with weights by name."""
    model = parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    return model


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) / 8).astype(np.float32)


def quantized(model: ModelProto | str, **arguments: object) -> ModelProto:
    quantizer = MatMulNBitsQuantizer(model, block_size=16, **arguments)
    quantizer.process()
    return quantizer.model.model


def operators(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def run(model: ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def test_a_weight_that_two_products_read_is_stored_once() -> None:
    model = model_of(
        "g (float[n, 32] x) => (float[n, 8] y, float[n, 8] z) { y = MatMul(x, w) t = Relu(x) z = MatMul(t, w) }",
        w=weight(32, 8),
    )
    small = quantized(copy.deepcopy(model))
    assert [each.name for each in small.graph.initializer] == ["w_Q4", "w_scales", "w_zero_points"]
    pairs = quantized(model, quant_format=QuantFormat.QDQ)
    assert [each.name for each in pairs.graph.initializer] == ["w_DQ_Q4", "w_DQ_scales", "w_DQ_zero_points"]
    for each in (small, pairs):
        run(each, x=weight(2, 32))


def test_a_table_that_is_looked_up_and_multiplied_gets_other_names_for_each() -> None:
    model = model_of(
        "g (int64[n] i, float[n, 32] x) => (float[n, 32] y, float[n, 32] z) { y = Gather(w, i) z = MatMul(x, w) }",
        w=weight(32, 32),
    )
    want = run(model, i=np.array([3, 31]), x=weight(2, 32, seed=1))
    small = quantized(model, op_types_to_quantize=("MatMul", "Gather"))
    names = [each.name for each in small.graph.initializer]
    assert len(names) == len(set(names)) == 6
    for got, exact in zip(run(small, i=np.array([3, 31]), x=weight(2, 32, seed=1)), want, strict=True):
        assert np.abs(got - exact).max() < 0.15


def branches_with_weights() -> ModelProto:
    """An If whose branches multiply by a weight of the graph around and by one of their own."""
    model = model_of(
        """g (bool c, float[n, 32] x) => (float[n, 8] y) {
            y = If(c) <then_branch = a () => (float[n, 8] p) { p = MatMul(x, w) },
                       else_branch = b () => (float[n, 8] q) { q = MatMul(x, v) }>
        }""",
        w=weight(32, 8),
    )
    branch = model.graph.node[0].attribute[1].g
    branch.initializer.append(numpy_helper.from_array(weight(32, 8, seed=2), "v"))
    return model


def names_of(graph: GraphProto) -> list[str]:
    return [each.name for each in graph.initializer]


@pytest.mark.parametrize("quant_format", [QuantFormat.QOperator, QuantFormat.QDQ])
def test_products_inside_branches_are_quantized_with_weights_of_any_graph(quant_format: QuantFormat) -> None:
    """Weights of pairs move into the branch: onnxruntime looks for them there alone."""
    model = branches_with_weights()
    x = weight(3, 32, seed=3)
    want = [run(model, c=np.array(value), x=x)[0] for value in (True, False)]
    small = quantized(model, quant_format=quant_format)
    inner = {attribute.name: attribute.g for attribute in small.graph.node[0].attribute}
    start, product = (
        ("_DQ", ["DequantizeLinear", "MatMul"]) if quant_format == QuantFormat.QDQ else ("", ["MatMulNBits"])
    )
    assert [node.op_type for graph in inner.values() for node in graph.node] == product * 2
    ends = [f"{start}_Q4", f"{start}_scales", f"{start}_zero_points"]
    holder = inner["then_branch"] if quant_format == QuantFormat.QDQ else small.graph
    assert names_of(holder) == [f"w{end}" for end in ends]
    assert names_of(inner["else_branch"]) == [f"v{end}" for end in ends]
    for value, exact in zip((True, False), want, strict=True):
        assert np.abs(run(small, c=np.array(value), x=x)[0] - exact).max() < 0.1


@pytest.mark.parametrize("operand", ["float[2, 32]", "float[a, b, 32]", "float[2, 1, 5, 32]", "float"])
@pytest.mark.parametrize("quant_format", [QuantFormat.QOperator, QuantFormat.QDQ])
def test_leading_axes_of_a_weight_reach_the_result(operand: str, quant_format: QuantFormat) -> None:
    model = model_of(f"g ({operand} x) => (float y) {{ y = MatMul(x, w) }}", w=weight(1, 1, 32, 8))
    if operand == "float":  # of no known rank
        model.graph.input[0].type.tensor_type.ClearField("shape")
    x = weight(*{"float[a, b, 32]": (3, 4, 32), "float[2, 1, 5, 32]": (2, 1, 5, 32)}.get(operand, (2, 32)), seed=4)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    want = run(model, x=x)[0]
    small = quantized(model, quant_format=quant_format)
    assert "MatMulNBits" in operators(small) or "DequantizeLinear" in operators(small)
    got = run(small, x=x)[0]
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 0.15


def test_what_cannot_be_quantized_stays_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(
        """g (float[n, 32] x, float[32, 8] given, float[32] row) => (float y, float z, float u, float v) {
            y = MatMul(x, given) z = MatMul(x, many) u = MatMul(row, w) v = MatMul(x, empty)
        }""",
        many=weight(2, 32, 8), w=weight(32, 8), empty=weight(32, 0),
    )  # fmt: skip
    with caplog.at_level(logging.INFO, "ort_quantization"):
        small = quantized(model)
    assert operators(small) == ["MatMul"] * 4
    for reason in ("no constant", "not one matrix", "a vector", "is empty"):
        assert reason in caplog.text


CHAIN = "g (float[n, 32] x) => (float[n, 32] z) { y = MatMul(x, w) z = MatMul(y, v) }"


def chain() -> ModelProto:
    model = model_of(CHAIN, w=weight(32, 32), v=weight(32, 32, seed=1))
    for node, name in zip(model.graph.node, ("one", "two"), strict=True):
        node.name = name
    return model


def test_nodes_are_excluded_and_included_by_name() -> None:
    assert operators(quantized(chain(), nodes_to_exclude=["one"])) == ["MatMul", "MatMulNBits"]
    only = quantized(chain(), op_types_to_quantize=("Gather",), nodes_to_include=["two"])
    assert operators(only) == ["MatMul", "MatMulNBits"]
    both = quantized(chain(), nodes_to_include=["two"], nodes_to_exclude=["two"])
    assert operators(both) == ["MatMulNBits", "MatMul"]


def test_nodes_have_settings_of_their_own() -> None:
    custom = {"two": {"bits": 8, "group_size": 32, "scheme": "sym"}}
    small = quantized(chain(), algo_config=RTNWeightOnlyQuantConfig(customized_weight_config=custom))
    found = [{each.name: each.i for each in node.attribute} for node in small.graph.node]
    assert [(each["bits"], each["block_size"]) for each in found] == [(4, 16), (8, 32)]
    assert [len(node.input) for node in small.graph.node] == [4, 3]


def test_an_older_model_is_converted_where_pairs_need_it() -> None:
    model = model_of(
        "g (float[n, 32] x) => (float[n, 1] z) { y = MatMul(x, w) z = ReduceSum <axes = [1]> (y) }",
        opset=11, ir_version=6, w=weight(32, 32),
    )  # fmt: skip
    want = run(model, x=weight(2, 32))[0]
    packed = quantized(copy.deepcopy(model))
    assert (packed.opset_import[0].version, packed.ir_version) == (11, 6)  # MatMulNBits needs nothing newer
    small = quantized(model, quant_format=QuantFormat.QDQ)
    assert (small.opset_import[0].version, small.ir_version) == (21, 10)
    onnx.checker.check_model(small)
    assert np.abs(run(small, x=weight(2, 32))[0] - want).max() < 0.5


def saved(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save_model(chain(), path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


@pytest.mark.parametrize("has_external_data", [True, False])
def test_a_file_with_external_data_is_read_and_written(tmp_path: Path, has_external_data: bool) -> None:
    quantizer = MatMulNBitsQuantizer(str(saved(tmp_path)), block_size=16, nodes_to_exclude=["two"])
    quantizer.process()
    (tmp_path / "out").mkdir()
    quantizer.model.save_model_to_file(str(tmp_path / "out" / "small.onnx"), has_external_data)
    (tmp_path / "weights").unlink()
    x = weight(2, 32, seed=5)
    found = onnxruntime.InferenceSession(tmp_path / "out" / "small.onnx").run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, run(quantized(chain(), nodes_to_exclude=["two"]), x=x)[0])
    assert (tmp_path / "out" / "small.onnx.data").exists() == has_external_data


def test_the_model_is_whole_where_a_program_saves_it_itself(tmp_path: Path) -> None:
    quantizer = MatMulNBitsQuantizer(str(saved(tmp_path)), block_size=16, nodes_to_exclude=["two"])
    quantizer.process()
    content = quantizer.model.model.SerializeToString()
    (tmp_path / "weights").unlink()
    onnxruntime.InferenceSession(content).run(None, {"x": weight(2, 32)})


def test_weights_in_files_are_held_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = saved(tmp_path), matmul_nbits_data.read_tensor
    quantizer = MatMulNBitsQuantizer(str(path), block_size=16)
    held: list[int] = []

    def counted(tensor: TensorProto, folder: str) -> TensorProto:
        held.append(sum(len(each.raw_data) for each in quantizer.model.streamed.graph.initializer if each.name in "wv"))
        return read(tensor, folder)

    monkeypatch.setattr(matmul_nbits_data, "read_tensor", counted)
    quantizer.process()
    assert held == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"bits": 3}, "2, 4 or 8 bits"),
        ({"block_size": 24}, "powers of two"),
        ({"block_size": 8}, "powers of two"),
        ({"algo_config": RTNWeightOnlyQuantConfig(customized_weight_config={"one": {"bit": 8}})}, "group_size"),
        ({"algo_config": HQQWeightOnlyQuantConfig(bits=5)}, "2, 4 or 8 bits"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidQuantization, match=text):
        MatMulNBitsQuantizer(chain(), **arguments).process()


def test_methods_refuse_what_their_operators_do_not_take() -> None:
    with pytest.raises(NotImplementedError, match="QDQ"):
        DefaultWeightOnlyQuantConfig(channel_wised_quantize=True)
    with pytest.raises(InvalidQuantization, match="float zero points"):
        HQQWeightOnlyQuantConfig(quant_format=QuantFormat.QDQ)
    with pytest.raises(InvalidQuantization, match="axis 0"):
        HQQWeightOnlyQuantConfig(axis=0)


def test_a_weight_that_is_no_number_is_named() -> None:
    model = chain()
    broken = weight(32, 32)
    broken[3, 4] = np.nan
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(broken, "v"))
    with pytest.raises(InvalidQuantization, match=r"'v' of node 'two'.*nodes_to_exclude"):
        quantized(model)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"nothing\.onnx"):
        MatMulNBitsQuantizer(str(tmp_path / "nothing.onnx"))


def test_a_table_without_the_axis_is_refused() -> None:
    model = model_of("g (int64[n] i) => (float[n] y) { y = Gather(w, i) }", w=weight(64))
    with pytest.raises(OrtError, match="axis 1"):
        quantized(model, op_types_to_quantize=("Gather",))


def test_real_zero_points_come_closer_than_the_range() -> None:
    random = np.random.default_rng(6)
    matrix = random.standard_t(3, size=(256, 16)).astype(np.float32)  # large values are rare, as in trained weights
    found = {}
    for name, config in {"hqq": HQQWeightOnlyQuantConfig(64), "rtn": RTNWeightOnlyQuantConfig()}.items():
        model = model_of("g (float[n, 256] x) => (float[n, 16] y) { y = MatMul(x, w) }", w=matrix)
        quantizer = MatMulNBitsQuantizer(model, block_size=64, algo_config=config)
        quantizer.process()
        got = run(quantizer.model.model, x=np.eye(256, dtype=np.float32))[0]
        found[name] = float((np.abs(got - matrix) ** 0.7).mean())
    assert found["hqq"] < found["rtn"]


def test_weights_on_a_grid_with_real_least_values_keep_theirs() -> None:
    random = np.random.default_rng(7)
    numbers = random.integers(0, 16, (4, 64, 16))
    numbers[:, :2] = np.array([0, 15])[:, None]
    scale, least = random.uniform(0.01, 0.02, (4, 1, 16)), random.uniform(-0.2, 0.05, (4, 1, 16))
    matrix = (numbers * scale + least).astype(np.float32).reshape(256, 16)
    model = model_of("g (float[n, 256] x) => (float[n, 16] y) { y = MatMul(x, w) }", w=matrix)
    quantizer = MatMulNBitsQuantizer(model, block_size=64, algo_config=HQQWeightOnlyQuantConfig(64))
    quantizer.process()
    np.testing.assert_allclose(run(quantizer.model.model, x=np.eye(256, dtype=np.float32))[0], matrix, atol=1e-6)
