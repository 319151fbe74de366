"""Files whose nodes stand before what they read are quantized as files in order are; computed weights turn once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import description, relative_error, run_onnxruntime
from body_models import BODIES
from float_models import DYNAMIC, Builder, feeds_of
from onnx import parser
from static_models import STATIC

from ort_core.model_graphs import graphs_of
from ort_quantization import QuantFormat, quant_pre_process, quantize_dynamic, quantize_static
from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import QuantType

# One step of 255 that falls to the other side, somewhere in a small model.
ONE_STEP = 0.02


class Reader:
    """Gives one random sample of a model."""

    def __init__(self, model):
        self.left = iter([feeds_of(model)])

    def get_next(self):
        return next(self.left, None)


def backwards(model):
    """A copy whose nodes, inner ones too, stand in reverse order."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for graph in graphs_of(found.graph):
        nodes = list(graph.node)[::-1]
        del graph.node[:]
        graph.node.extend(nodes)
    return found


def in_both_orders(tmp_path, model, quantize):
    """Quantize a model in order and one backwards, and return what each became."""
    targets = [tmp_path / name for name in ("forwards.onnx", "backwards.onnx")]
    for each, target in zip((model, backwards(model)), targets, strict=True):
        source = target.with_suffix(".float.onnx")
        onnx.save(each, source)
        quantize(source, target)
    return [onnx.load(target) for target in targets]


# The names of forms that several nodes share follow from which of them comes first.
NAMED_BY_ORDER = ("tied embedding", "shared bias")


@pytest.mark.parametrize("name", [name for name in DYNAMIC if name not in NAMED_BY_ORDER])
def test_the_order_of_nodes_does_not_change_a_dynamic_quantization(tmp_path, name):
    found = in_both_orders(tmp_path, DYNAMIC[name](), lambda source, target: quantize_dynamic(source, target))
    assert description(found[1].graph) == description(found[0].graph)


@pytest.mark.parametrize("name", BODIES)
def test_the_order_of_nodes_in_bodies_does_not_change_a_quantization(tmp_path, name):
    options = {"EnableSubgraph": True}
    found = in_both_orders(
        tmp_path, BODIES[name](), lambda source, target: quantize_dynamic(source, target, extra_options=options)
    )
    assert description(found[1].graph) == description(found[0].graph)


@pytest.mark.sweep
@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("name", [name for name in STATIC if name not in NAMED_BY_ORDER])
def test_the_order_of_nodes_does_not_change_a_static_quantization(tmp_path, name, quant_format):
    model = STATIC[name]()
    found = in_both_orders(
        tmp_path, model,
        lambda source, target: quantize_static(
            source, target, Reader(model), quant_format, activation_type=QuantType.QUInt8
        ),
    )  # fmt: skip
    assert description(found[1].graph) == description(found[0].graph)


def test_a_model_out_of_order_is_prepared(tmp_path):
    model = STATIC["residual network"]()
    prepared = in_both_orders(tmp_path, model, lambda source, target: quant_pre_process(source, target))
    results = [run_onnxruntime(tmp_path / name, feeds_of(model)) for name in ("forwards.onnx", "backwards.onnx")]
    assert len(prepared[0].graph.node) == len(prepared[1].graph.node)
    assert relative_error(results[1], results[0]) < 1e-6


def test_nodes_that_read_their_own_results_are_refused(tmp_path):
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {y = Add(x, y)}')
    with pytest.raises(InvalidQuantization, match=r"Add.* reads, over others, its own result"):
        quantize_dynamic(model, tmp_path / "small.onnx")


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_computed_weight_of_several_transposed_gemms_is_transposed_once_in_a_graph(tmp_path, is_nested):
    b = Builder()
    levels = b.constant("levels", b.random.integers(-127, 127, (8, 16)), np.int8)
    weight = b.node("DequantizeLinear", [levels, b.constant("scale", np.float32(0.01))], "w")
    first = b.node("Gemm", ["x", weight, b.weight("b", 8)], "first", transB=1)
    second = b.node("Gemm", ["x", weight], "second", transB=1)
    total = b.node("Add", [first, second], "y" if not is_nested else "total")
    if is_nested:
        branch = onnx.helper.make_graph(
            [onnx.helper.make_node("Gemm", ["x", weight], ["t"], "inner", transB=1)], "branch", [],
            [onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, None)],
        )  # fmt: skip
        other = onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", [total], ["e"])], "other", [],
            [onnx.helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, None)],
        )  # fmt: skip
        b.node("If", [b.constant("yes", True)], "y", then_branch=branch, else_branch=other)
    model = b.model({"x": ("n", 16)}, ["y"])
    onnx.save(model, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "small.onnx")
    small = onnx.load(tmp_path / "small.onnx")
    kinds = [[node.op_type for node in graph.node].count("Transpose") for graph in graphs_of(small.graph)]
    assert max(kinds) == 1
    feeds = feeds_of(model)
    expected = run_onnxruntime(tmp_path / "float.onnx", feeds)
    assert relative_error(run_onnxruntime(tmp_path / "small.onnx", feeds), expected) < ONE_STEP
