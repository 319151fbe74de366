"""Models that MatMulNBitsQuantizer writes hold the bytes of onnxruntime's own tool, and run alike in both engines."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core
from ort_quantization import matmul_nbits_quantizer as ours
from ort_quantization.errors import InvalidQuantization
from ort_quantization.weight_only.matmul_nbits_rounding import k_quant, round_to_nearest


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    """onnxruntime's module, whose import sets up logging for the whole process: that is undone."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    from onnxruntime.quantization import matmul_nbits_quantizer

    root.handlers[:], root.level = handlers, level
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.CRITICAL)
    return matmul_nbits_quantizer


def two_products(rows: int = 96, columns: int = 40, dtype: type = np.float32) -> ModelProto:
    """Two products and a look-up; the second weight has fewer rows than a block."""
    random = np.random.default_rng(rows + columns)
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.FLOAT16
    shapes = {"w": (rows, columns), "v": (columns, 24), "table": (50, 64)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("MatMul", ["h", "v"], ["y"], "second"),
        helper.make_node("Gather", ["table", "i"], ["z"], "look"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", kind, ["n", rows]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["m"]),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, ["n", None]) for name in "yz"]
    tensors = [
        numpy_helper.from_array((random.normal(size=shape) / np.sqrt(shape[0])).astype(dtype), name)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def facts(model: ModelProto) -> tuple[dict[str, tuple[object, ...]], list[tuple[object, ...]]]:
    """Return what a model's tensors and nodes are."""
    tensors = {
        each.name: (each.data_type, tuple(each.dims), numpy_helper.to_array(each).tobytes())
        for each in model.graph.initializer
    }
    nodes = [
        (node.op_type, node.domain, node.name, tuple(node.input), tuple(node.output), sorted(map(str, node.attribute)))
        for node in model.graph.node
    ]
    return tensors, sorted(nodes, key=str)


def quantized(tool: ModuleType, model: ModelProto, **arguments: object) -> ModelProto:
    quantizer = tool.MatMulNBitsQuantizer(copy.deepcopy(model), **arguments)
    quantizer.process()
    return quantizer.model.model


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("rows", "columns", "block_size"), [(96, 40, 32), (70, 33, 16)])
def test_products_in_blocks_are_written_as_by_onnxruntime(
    theirs: ModuleType, dtype: type, is_symmetric: bool, bits: int, rows: int, columns: int, block_size: int
) -> None:
    model = two_products(rows, columns, dtype)
    want, got = (
        quantized(tool, model, bits=bits, is_symmetric=is_symmetric, block_size=block_size, accuracy_level=4)
        for tool in (theirs, ours)
    )
    assert facts(got) == facts(want)
    assert got.opset_import == want.opset_import


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tables_are_written_as_by_onnxruntime(theirs: ModuleType, is_symmetric: bool, axis: int, dtype: type) -> None:
    arguments = {
        "op_types_to_quantize": ("MatMul", "Gather"), "quant_axes": (("Gather", axis),), "block_size": 32,
        "is_symmetric": is_symmetric,
    }  # fmt: skip
    model = two_products(dtype=dtype)
    assert facts(quantized(ours, model, **arguments)) == facts(quantized(theirs, model, **arguments))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("is_channel_wise", [True, False])
def test_pairs_are_written_as_by_onnxruntime(
    theirs: ModuleType, dtype: type, is_symmetric: bool, is_channel_wise: bool
) -> None:
    model = two_products(dtype=dtype)
    want, got = (
        quantized(
            tool, model, quant_format=tool.QuantFormat.QDQ, is_symmetric=is_symmetric, block_size=32,
            channel_wised_quantize=is_channel_wise,
        )
        for tool in (theirs, ours)
    )  # fmt: skip
    assert facts(got) == facts(want)


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("method", ["RTN", "KQuant", "cut"])
def test_other_methods_without_data_give_the_numbers_of_onnxruntime(
    theirs: ModuleType, is_symmetric: bool, dtype: type, method: str
) -> None:
    model = two_products(rows=128, columns=64, dtype=dtype)  # onnxruntime fails at odd numbers of blocks
    found = []
    for tool in (theirs, ours):
        if method == "KQuant":
            config = tool.KQuantWeightOnlyQuantConfig()
        else:
            ratios = {"w": 0.9} if method == "cut" else None
            custom = {"second": {"bits": 8, "group_size": 16, "scheme": "sym"}}
            config = tool.RTNWeightOnlyQuantConfig(ratios, customized_weight_config=custom)
        found.append(quantized(tool, model, block_size=32, is_symmetric=is_symmetric, algo_config=config))
    tensors, nodes = zip(*map(facts, found), strict=True)
    assert tensors[0] == tensors[1]
    assert nodes[0] == nodes[1]


def test_the_model_stays_as_onnx_leaves_it_when_it_writes_tensors_beside_it(tmp_path: Path) -> None:
    """``onnx.save`` puts references into the model that it is given; to look at that once more read them elsewhere."""
    onnx.save(
        two_products(), tmp_path / "given.onnx", save_as_external_data=True, location="given.data", size_threshold=0
    )
    quantizer = ours.MatMulNBitsQuantizer(onnx.load(tmp_path / "given.onnx"), accuracy_level=4)
    quantizer.process()
    (tmp_path / "out").mkdir()
    written = tmp_path / "out" / "few_bits.onnx"
    onnx.save(quantizer.model.model, written, save_as_external_data=True, location="few_bits.data", size_threshold=0)
    assert [node.op_type for node in quantizer.model.model.graph.node].count("MatMulNBits") == 2
    found, whole = facts(onnx.load(written)), facts(quantized(ours, two_products(), accuracy_level=4))
    assert found == whole


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else QDQ gets int8 operands
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ({"bits": 2}, None),
        ({"bits": 4}, None),
        ({"bits": 8, "is_symmetric": True}, None),
        ({"quant_format": ours.QuantFormat.QDQ}, None),
        ({"quant_format": ours.QuantFormat.QDQ, "bits": 2}, None),
        (
            {"quant_format": ours.QuantFormat.QDQ, "bits": 2, "is_symmetric": True},
            ours.RTNWeightOnlyQuantConfig(quant_format=ours.QuantFormat.QDQ),
        ),
        ({"quant_format": ours.QuantFormat.QDQ, "bits": 8}, None),
        ({}, ours.HQQWeightOnlyQuantConfig(block_size=16)),
        ({"bits": 8}, ours.KQuantWeightOnlyQuantConfig(quant_format=ours.QuantFormat.QDQ)),
    ],
)
def test_both_engines_compute_what_the_numbers_stand_for(
    arguments: dict[str, Any], config: ours.WeightOnlyQuantConfig | None
) -> None:
    model = two_products(rows=70, columns=33)
    small = quantized(ours, model, **({"block_size": 16} | arguments), algo_config=config)
    onnx.checker.check_model(small)
    random = np.random.default_rng(1)
    feeds = {"x": random.normal(size=(5, 70)).astype(np.float32), "i": np.array([0, 49, 3])}
    want = session(small).run(None, feeds)
    got = ort_core.InferenceSession(small.SerializeToString()).run(None, feeds)
    for mine, other in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    exact = session(model).run(None, feeds)[0].astype(np.float64)
    error = np.linalg.norm(got[0] - exact) / np.linalg.norm(exact)
    assert error < {2: 0.9, 4: 0.2, 8: 0.01}[arguments.get("bits", 4)]


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tables_of_8_bits_give_in_both_engines_the_rows_to_half_a_step(dtype: type, is_symmetric: bool) -> None:
    model = two_products(dtype=dtype)
    arguments = {"op_types_to_quantize": ("Gather",), "bits": 8, "block_size": 16, "is_symmetric": is_symmetric}
    small = quantized(ours, model, **arguments)
    (node,) = (each for each in small.graph.node if each.op_type == "GatherBlockQuantized")
    assert {each.name: each.i for each in node.attribute}["bits"] == 8
    feeds = {"x": np.zeros((2, 96), dtype), "i": np.array([0, 49, 3])}
    want = session(model).run(["z"], feeds)[0].astype(np.float64)
    step = np.abs(want).max() * 2 / 255
    for engine in (session(small), ort_core.InferenceSession(small.SerializeToString())):
        assert np.abs(engine.run(["z"], feeds)[0] - want).max() <= 0.51 * step + 1e-3 * (dtype == np.float16)


def test_tables_of_8_bits_have_blocks_along_their_last_axis_only() -> None:
    arguments = {"op_types_to_quantize": ("Gather",), "quant_axes": (("Gather", 0),), "bits": 8, "block_size": 16}
    with pytest.raises(InvalidQuantization, match=r"along axis 0 of a table.*the last axis"):
        quantized(ours, two_products(), **arguments)


def test_half_types_give_scales_of_their_own_type() -> None:
    model = two_products(dtype=np.float16)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(
                numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)), tensor.name
            )
        )
    for each in [*model.graph.input[:1], *model.graph.output]:
        each.type.tensor_type.elem_type = TensorProto.BFLOAT16
    for config in (None, ours.HQQWeightOnlyQuantConfig(32), ours.RTNWeightOnlyQuantConfig()):
        small = quantized(ours, model, block_size=32, algo_config=config, op_types_to_quantize=("MatMul", "Gather"))
        kinds = {each.name: each.data_type for each in small.graph.initializer if "scale" in each.name}
        assert len(kinds) >= 2
        assert set(kinds.values()) == {TensorProto.BFLOAT16}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("method", ["RTN", "k_quant"])
def test_blocks_on_one_side_of_zero_keep_their_values(bits: int, method: str) -> None:
    weight = np.random.default_rng(2).uniform(5, 6, size=(64, 8)).astype(np.float32)
    weight[:, 4:] *= -1
    numbers = k_quant(weight, bits, 32) if method == "k_quant" else round_to_nearest(weight, bits, 32, False)
    # onnxruntime's tool cuts the zero point of such a block, and with it the values
    assert np.abs(numbers.dequantized() - weight).max() <= 6 / ((1 << bits) - 1)
