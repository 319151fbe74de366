"""Models that onnxruntime saves at level ALL: their blocked layout is read back into ONNX's own operators."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core
from ort_core.errors import InvalidGraph, NotImplemented
from ort_core.onnx_io.blocked_filters import BlockedFilter, find_block_size

BLOCKED = "com.microsoft.nchwc"


class Net:
    """Builds a chain of convolutional layers with seeded weights."""

    def __init__(self, channels=3, opset=18, batch="N", seed=0):
        self.random, self.nodes, self.weights = np.random.default_rng(seed), [], []
        self.shape, self.opset, self.dims = (2, channels, 9, 10), opset, [batch, channels, 9, 10]

    def weight(self, *shape, scale=None, array=None):
        name = f"w{len(self.weights)}"
        scale = scale or 1 / np.sqrt(max(1, np.prod(shape[1:])))
        array = (self.random.standard_normal(shape) * scale).astype(np.float32) if array is None else array
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, op_type, *inputs, **attributes):
        name = f"{op_type}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def conv(self, value, made, read, kernel=3, bias=True, group=1, **attributes):
        inputs = [value, self.weight(made, read // group, kernel, kernel), *([self.weight(made)] if bias else [])]
        return self("Conv", *inputs, group=group, **{"pads": [kernel // 2] * 4, **attributes})

    def model(self, *outputs):
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.dims)
        graph = helper.make_graph(self.nodes, "g", [x], values, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def activated(op_type, **attributes):
    def build(net):
        return [net.conv(net(op_type, net.conv("x", 20, 3), **attributes), 12, 20)]

    return build


def residual(net):
    first = net("MaxPool", net("Relu", net.conv("x", 40, 3)), kernel_shape=[2, 2], strides=[2, 2])
    other = net.conv(net("Relu", net.conv(first, 40, 40)), 40, 40, bias=False)
    return [net("GlobalAveragePool", net("Relu", net("Add", other, first)))]


def groups(net):
    deep = net.conv(net("Relu", net.conv("x", 28, 3, strides=[2, 2])), 28, 28, group=28)
    wide = net.conv(deep, 64, 28, kernel=1)
    return [net.conv(wide, 32, 64, group=2)]


def squeezed(net):
    image = net.conv("x", 24, 3)
    gate = net("Sigmoid", net.conv(net("GlobalAveragePool", image), 24, 24, kernel=1))
    return [net.conv(net("Mul", image, gate), 4, 24, kernel=1)]


def concatenated(net):
    parts = [net.conv("x", 16, 3), net.conv("x", 32, 3)]
    return [net.conv(net("Concat", *parts, axis=1), 20, 48, kernel=1), net("Sigmoid", parts[0])]


def pools(net):
    image = net.conv("x", 20, 3)
    largest = net("MaxPool", image, kernel_shape=[3, 3], ceil_mode=1, strides=[2, 2])
    mean = net("AveragePool", net.conv(largest, 20, 20), kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    return [net.conv(mean, 4, 20), net("GlobalMaxPool", net.conv(image, 36, 20))]


def resized(mode, coordinates):
    def build(net):
        scales = net.weight(array=np.array([1, 1, 2, 3], np.float32))
        given = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
        return [net.conv(net("Resize", net.conv("x", 20, 3), "", scales, **given), 4, 20)]

    return build


def pruned(net):
    """The last channels of an image are there and nobody reads them: they are not padding."""
    image = net("Relu", net.conv("x", 24, 3))
    filters = numpy_helper.to_array(net.weights[0]).copy()
    filters[13:] = 0
    net.weights[0] = numpy_helper.from_array(filters, "w0")
    result = net.conv(image, 8, 24)
    readers = numpy_helper.to_array(net.weights[2]).copy()
    readers[:, 11:] = 0
    net.weights[2] = numpy_helper.from_array(readers, "w2")
    return [result]


def normalized(net):
    pooled = net("MaxPool", net.conv("x", 20, 3), kernel_shape=[2, 2])
    facts = [net.weight(20), net.weight(20), net.weight(20), net.weight(array=np.full(20, 0.7, np.float32))]
    return [net.conv(net("Relu", net("BatchNormalization", pooled, *facts)), 4, 20)]


def dilated(net):
    return [net.conv(net.conv("x", 20, 3, pads=[2] * 4, dilations=[2, 2]), 20, 20, auto_pad="SAME_LOWER", pads=None)]


def clipped(net):
    bounds = [net.weight(array=np.float32(bound).reshape(())) for bound in (-0.4, 0.6)]
    return [net.conv(net("Clip", net.conv("x", 20, 3), *bounds), 4, 20)]


def channels_last(net):
    net.shape, net.dims = (2, 9, 10, 20), ["N", None, None, 20]
    image = net("Relu", net.conv(net("Transpose", "x", perm=[0, 3, 1, 2]), 20, 20))
    return [net("Transpose", image, perm=[0, 2, 3, 1])]


NETS = {
    "residual": residual, "groups": groups, "squeezed": squeezed, "concatenated": concatenated, "pools": pools,
    "pruned": pruned, "normalized": normalized, "dilated": dilated, "clipped": clipped, "channels_last": channels_last,
    "nearest": resized("nearest", "asymmetric"), "corners": resized("linear", "align_corners"),
    "half_pixel": resized("linear", "half_pixel"), "linear": resized("linear", "asymmetric"),
    "leaky": activated("LeakyRelu", alpha=0.3), "hard": activated("HardSigmoid", alpha=0.3, beta=0.4),
    "tanh": activated("Tanh"), "elu": activated("Elu", alpha=0.5), "hard_swish": activated("HardSwish"),
}  # fmt: skip


def save(model, path):
    """Save what onnxruntime makes of a model at level ALL; return its session."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(path)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("suffix", ["onnx", "ort"])
@pytest.mark.parametrize("name", list(NETS))
def test_what_onnxruntime_saves_at_level_all_computes_the_same(name, suffix, tmp_path):
    net = Net()
    model = net.model(*NETS[name](net))
    oracle = save(model, tmp_path / f"model.{suffix}")
    feeds = {"x": net.random.standard_normal(net.shape).astype(np.float32)}
    session = ort_core.InferenceSession(tmp_path / f"model.{suffix}")
    for ours, theirs in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [8, 10, 12])
def test_old_operator_sets_get_operators_that_they_import_or_newer_ones_of_their_own(opset, tmp_path):
    net = Net(opset=opset)
    bounded = net("Clip", net.conv("x", 20, 3), min=-0.4, max=0.6) if opset < 11 else net.conv("x", 20, 3)
    model = net.model(net.conv(net("AveragePool", bounded, kernel_shape=[2, 2]), 20, 20))
    oracle = save(model, tmp_path / "model.onnx")
    feeds = {"x": net.random.standard_normal(net.shape).astype(np.float32)}
    options = ort_core.SessionOptions()
    options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort_core.InferenceSession(tmp_path / "model.onnx", options)
    np.testing.assert_allclose(session.run(None, feeds)[0], oracle.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def stored(plain, size, is_input_blocked):
    """Lay out a filter in blocks, number by number."""
    made, read, height, width = plain.shape
    rows, columns = -(-made // size) * size, -(-read // size) * size if is_input_blocked else read
    content, inner = np.zeros(rows * columns * height * width, np.float32), size if is_input_blocked else 1
    for m, c, y, x in itertools.product(range(made), range(read), range(height), range(width)):
        place = (((m // size * (columns // inner) + c // inner) * height + y) * width + x) * inner + c % inner
        content[place * size + m % size] = plain[m, c, y, x]
    return content.reshape(rows, columns, height, width)


def written(size, channels, random, spread):
    """Return a blocked model of sixteen convolutions, and the plain one."""
    filters = [(channels, 3, 3, 3), (channels, channels, 3, 3), *[(channels, channels, 1, 1)] * 14]
    plain = [(random.standard_normal(s) * np.prod(s[1:]) ** -0.5 * spread(s[0])).astype(np.float32) for s in filters]
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [("", "Conv", ["x", "f0"], ["a"], pads), ("", "Relu", ["a"], ["b"], {}),
             ("", "Conv", ["b", "f1"], ["c2"], pads),
             *[("", "Conv", [f"c{i}", f"f{i}"], [f"c{i + 1}" if i < 15 else "y"], {}) for i in range(2, 16)],
    ]  # fmt: skip
    blocked = [(BLOCKED, "Conv", ["x", "f0"], ["b"], {**pads, "activation": "Relu"}),
               (BLOCKED, "Conv", ["b", "f1"], ["c2"], pads),
               *[(BLOCKED, "Conv", [f"c{i}", f"f{i}"], [f"c{i + 1}"], {}) for i in range(2, 16)],
               (BLOCKED, "ReorderOutput", ["c16"], ["y"], {"channels": channels})]  # fmt: skip

    def model(nodes, weights):
        made = [helper.make_node(op, i, o, domain=domain, **a) for domain, op, i, o, a in nodes]
        x, y = (
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 6, 7]) for n, c in (("x", 3), ("y", channels))
        )
        tensors = [numpy_helper.from_array(array, f"f{i}") for i, array in enumerate(weights)]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(BLOCKED, 1)]
        return helper.make_model(helper.make_graph(made, "g", [x], [y], tensors), opset_imports=imports, ir_version=8)

    return model(blocked, [stored(p, size, i > 0) for i, p in enumerate(plain)]), model(nodes, plain)


def trained(random):
    """Return the scales of channels as training leaves them: some ten times others."""
    return lambda channels: np.exp(random.standard_normal((channels, 1, 1, 1)))


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("channels", [20, 28, 40, 64])
def test_the_size_of_blocks_is_found_whatever_machine_saved_the_model(size, channels):
    random = np.random.default_rng(channels)
    model, plain = written(size, channels, random, trained(random))
    x = random.standard_normal((1, 3, 6, 7)).astype(np.float32)
    oracle = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    session = ort_core.InferenceSession(model.SerializeToString())
    wanted = oracle.run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert f"in blocks of {size} channels" in str(session.explain())


def test_a_model_that_does_not_tell_its_blocks_is_taken_for_this_machines_with_a_warning(caplog, monkeypatch):
    random = np.random.default_rng(1)
    for size in (8, 16):
        monkeypatch.setattr("ort_core.onnx_io.blocked_filters.machine_block_size", lambda size=size: size)
        model, plain = written(size, 64, random, lambda _: 1)
        x = random.standard_normal((1, 3, 6, 7)).astype(np.float32)
        oracle = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
        session = ort_core.InferenceSession(model.SerializeToString())
        wanted = oracle.run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert caplog.text.count("the file does not say which") == 2


def test_random_filters_tell_no_size_by_their_norms():
    random = np.random.default_rng(2)
    for _ in range(20):
        filters = [BlockedFilter(random.standard_normal((64, 64, 3, 3)).astype(np.float32), True) for _ in range(3)]
        assert find_block_size(filters, [])[1] == "this machine"


def test_filters_that_fit_no_blocks_are_refused():
    model, _ = written(8, 20, np.random.default_rng(3), lambda _: 1)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((20, 3, 3, 3), np.float32), "f0"))
    with pytest.raises(InvalidGraph, match="blocked neither by 8 nor by 16 channels"):
        ort_core.InferenceSession(model.SerializeToString())


def test_an_operator_that_cannot_read_blocked_images_is_named():
    model, _ = written(8, 20, np.random.default_rng(3), lambda _: 1)
    model.graph.node.append(helper.make_node("Softmax", ["c16"], ["z"], "strange"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    with pytest.raises(NotImplemented, match=r"'strange' \(ai.onnx::Softmax\) reads an image in onnxruntime's blocked"):
        ort_core.InferenceSession(model.SerializeToString())


def test_a_saved_model_holds_plain_operators_only(tmp_path):
    net = Net()
    save(net.model(*NETS["groups"](net)), tmp_path / "model.onnx")
    options = ort_core.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "plain.onnx")
    options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_ENABLE_BASIC
    ort_core.InferenceSession(tmp_path / "model.onnx", options)
    saved = onnx.load(tmp_path / "plain.onnx")
    assert {node.domain for node in saved.graph.node} == {""}
    shapes = sorted(tuple(weights.dims) for weights in saved.graph.initializer if len(weights.dims) == 4)
    assert shapes == [(28, 1, 3, 3), (28, 3, 3, 3), (32, 32, 3, 3), (64, 28, 1, 1)]
