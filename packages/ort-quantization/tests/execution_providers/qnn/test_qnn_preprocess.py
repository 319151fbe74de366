"""Models prepared for QNN: the operators of onnxruntime's tool, and the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import run_onnxruntime
from float_models import Builder, feeds_of
from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model as theirs

from ort_quantization.errors import InvalidQuantization
from ort_quantization.execution_providers.qnn import qnn_preprocess_model

SHAPE = (2, 5, 8)


def gelu(order: int):
    b = Builder()
    root, one, half = (b.constant(name, np.float32(n)) for name, n in (("root", 2**0.5), ("one", 1), ("half", 0.5)))
    erf = b.node("Erf", [b.node("Div", ["x", root], "d")], "e")
    added = b.node("Add", [erf, one], "a")
    if order == 0:
        b.node("Mul", [b.node("Mul", ["x", added], "m"), half], "y")
    elif order == 1:
        b.node("Mul", ["x", b.node("Mul", [added, half], "m")], "y")
    else:
        b.node("Mul", [b.node("Mul", ["x", half], "m"), added], "y")
    return b.model({"x": SHAPE}, ["y"])


def normalized(has_clip: bool = True):
    b = Builder()
    norm = b.node("ReduceL2", ["x"], "n", axes=[-1], keepdims=1)
    if has_clip:
        norm = b.node("Clip", [norm, b.constant("tiny", np.float32(1e-12))], "c")
    shape = b.node("Shape", ["x"], "s")
    b.node("Div", ["x", b.node("Expand", [norm, shape], "w")], "y")
    return b.model({"x": SHAPE}, ["y"])


def space_to_depth(batch: int = 2, is_short: bool = False):
    """SpaceToDepth as YOLO's exports spell it, in six moves, or in three."""
    b = Builder()
    sizes = [[batch, 3, 4, 2, 5, 2], [batch, 3, 20, 4], [batch, 3, 4, 4, 5], [batch, 12, 4, 5]]
    orders = [[0, 1, 2, 4, 3, 5], [0, 1, 3, 2], [0, 2, 1, 3, 4]]
    if is_short:
        sizes, orders = [sizes[0], sizes[-1]], [[0, 3, 5, 1, 2, 4]]
    value = b.node("Abs", ["x"], "a")
    for place, shape in enumerate(sizes):
        value = b.node("Reshape", [value, b.constant(f"s{place}", np.array(shape))], f"r{place}")
        if place < len(orders):
            value = b.node("Transpose", [value], f"t{place}", perm=orders[place])
    b.node("Relu", [value], "y")
    return b.model({"x": (batch, 3, 8, 10)}, ["y"])


def layer_normalization():
    b = Builder()
    mean = b.node("ReduceMean", ["x"], "m", axes=[-1])
    centered = b.node("Sub", ["x", mean], "c")
    square = b.node("Pow", [centered, b.constant("two", np.float32(2))], "q")
    variance = b.node("ReduceMean", [square], "v", axes=[-1])
    root = b.node("Sqrt", [b.node("Add", [variance, b.constant("epsilon", np.float32(1e-5))], "p")], "r")
    scaled = b.node("Mul", [b.node("Div", [centered, root], "d"), b.weight("gain", 8)], "g")
    b.node("Add", [scaled, b.weight("shift", 8)], "y")
    return b.model({"x": SHAPE}, ["y"])


def relu():
    b = Builder()
    b.node("Relu", ["x"], "y")
    return b.model({"x": ("n", 3, 4, 5)}, ["y"])


@pytest.mark.parametrize(
    ("make", "op_type"),
    [
        (lambda: gelu(0), "Gelu"),
        (lambda: gelu(1), "Gelu"),
        (lambda: gelu(2), "Gelu"),
        (normalized, "LpNormalization"),
    ],
    ids=["gelu 0", "gelu 1", "gelu 2", "lp"],
)
def test_patterns_become_the_operator_of_onnxruntimes_tool(tmp_path, make, op_type):
    model, source = make(), tmp_path / "float.onnx"
    onnx.save(model, source)
    for run, name in ((qnn_preprocess_model, "here.onnx"), (theirs, "there.onnx")):
        assert run(source, tmp_path / name, fuse_layernorm=True)
    here, there = (onnx.load(tmp_path / name).graph.node for name in ("here.onnx", "there.onnx"))
    assert op_type in [node.op_type for node in here]
    assert [(n.op_type, n.domain) for n in here if n.op_type != "Shape"] == [(n.op_type, n.domain) for n in there]
    feeds = feeds_of(model)
    found, expected = (run_onnxruntime(path, feeds)[0] for path in (tmp_path / "here.onnx", source))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_convolutions_take_their_normalization_in_and_nodes_get_names_as_by_onnxruntimes_tool(tmp_path):
    b = Builder()
    inner = b.node("Conv", ["x", b.weight("w", 4, 3, 1, 1)], "c")
    factors = [b.weight(name, 4) for name in ("gain", "shift", "mean")]
    b.node("BatchNormalization", [inner, *factors, b.constant("variance", np.ones(4, np.float32))], "y")
    model, source = b.model({"x": (1, 3, 4, 4)}, ["y"]), tmp_path / "float.onnx"
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, source)
    for run, name in ((qnn_preprocess_model, "here.onnx"), (theirs, "there.onnx")):
        assert run(source, tmp_path / name)
    here, there = (onnx.load(tmp_path / name).graph.node for name in ("here.onnx", "there.onnx"))
    assert [node.op_type for node in here] == [node.op_type for node in there] == ["Conv"]
    assert all(node.name for node in here)
    found, expected = (run_onnxruntime(path, feeds_of(model))[0] for path in (tmp_path / "here.onnx", source))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_layer_normalization_is_fused_where_that_is_asked(tmp_path):
    model, source = layer_normalization(), tmp_path / "float.onnx"
    onnx.save(model, source)
    assert not qnn_preprocess_model(source, tmp_path / "out.onnx")
    assert qnn_preprocess_model(source, tmp_path / "out.onnx", fuse_layernorm=True)
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["LayerNormalization"]
    feeds = feeds_of(model)
    found, expected = (run_onnxruntime(path, feeds)[0] for path in (tmp_path / "out.onnx", source))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batch", "is_short"), [(1, False), (2, False), (1, True), (3, True)])
def test_space_to_depth_is_known_by_what_it_moves(tmp_path, batch, is_short):
    model = space_to_depth(batch, is_short)
    assert qnn_preprocess_model(model, tmp_path / "out.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["Abs", "SpaceToDepth", "Relu"]
    feeds = feeds_of(model)
    onnx.save(model, tmp_path / "float.onnx")
    found, expected = (run_onnxruntime(tmp_path / name, feeds)[0] for name in ("out.onnx", "float.onnx"))
    np.testing.assert_array_equal(found, expected)


def near_misses():
    moved = space_to_depth(is_short=True)
    moved.graph.node[2].attribute[0].CopyFrom(onnx.helper.make_attribute("perm", [0, 1, 3, 5, 2, 4]))  # channels first
    other_half, other_root, twice = gelu(0), gelu(1), gelu(2)
    other_half.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.float32(0.4), "half"))
    other_root.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32(1.5), "root"))
    twice.graph.output.append(onnx.helper.make_tensor_value_info("e", 1, None))  # the caller reads Erf's result
    return {"half": other_half, "root": other_root, "twice": twice, "moved": moved}


@pytest.mark.parametrize("name", ["half", "root", "twice", "moved"])
def test_what_only_looks_like_a_pattern_stays(tmp_path, name):
    assert not qnn_preprocess_model(near_misses()[name], tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_inputs_and_outputs_get_their_channels_last_and_sizes(tmp_path):
    assert qnn_preprocess_model(
        relu(), tmp_path / "out.onnx", inputs_to_make_channel_last=["x"], outputs_to_make_channel_last=["y"],
        dynamic_input_shapes=[("x", "2,3,4,5")],
    )  # fmt: skip
    model = onnx.load(tmp_path / "out.onnx")
    assert [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim] == [2, 4, 5, 3]
    value = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype("f")
    np.testing.assert_array_equal(run_onnxruntime(tmp_path / "out.onnx", {"x": value})[0], np.maximum(value, 0))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"inputs_to_make_channel_last": ["z"]}, "'z' is no input of the model; it has 'x'"),
        ({"dynamic_input_shapes": [("x", "1,4,4,5")]}, "cannot have the shape"),
        ({"dynamic_input_shapes": [("x", "one")]}, "no list of whole numbers"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(tmp_path, choices, message):
    with pytest.raises(InvalidQuantization, match=message):
        qnn_preprocess_model(relu(), tmp_path / "out.onnx", **choices)
