"""load -> save -> load: the model means the same, whatever ONNX can say."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

import ort_core as ort
from ort_core.environment import default_environment
from ort_core.ir.types import DataType
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import model_to_bytes, save_model

SAMPLE = 12  # every twelfth case of onnx's own suite: about 160 of all families


def sampled_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own arithmetic while it makes its expectations
        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    special = [c for c in cases if any(w in c.name for w in ("sequence", "optional", "loop", "scan", "_if_", "sparse"))]
    chosen = [*cases[::SAMPLE], *special]
    return {case.name: case for case in chosen if not any(w in case.name for w in ("bernoulli", "gradient"))}


CASES = sampled_cases()


def build(nodes, inputs, outputs, initializers=(), opset=21, **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=14, **more)


def untyped(name):
    return onnx.ValueInfoProto(name=name)


def assert_equal(found, expected):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            assert_equal(left, right)
    elif isinstance(expected, np.ndarray) and expected.dtype != object:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()
    elif isinstance(expected, np.ndarray):
        assert found.tolist() == expected.tolist()
    else:
        assert found == expected


def decoded(value):
    kinds = {onnx.TensorProto: numpy_helper.to_array, onnx.SequenceProto: numpy_helper.to_list}
    kinds[onnx.OptionalProto] = numpy_helper.to_optional
    return kinds.get(type(value), lambda same: same)(value)


@pytest.mark.parametrize("name", CASES)
def test_saved_backend_case_gives_equal_results(name, monkeypatch):
    monkeypatch.setattr(default_environment(), "seed", 1)
    case = CASES[name]
    inputs, _ = case.data_sets[0]
    names = [info.name for info in case.model.graph.input]
    feeds = {key: decoded(value) for key, value in zip(names, inputs, strict=False)}
    saved = model_to_bytes(load_model(case.model))
    expected = ort.InferenceSession(case.model).run(None, feeds)
    assert_equal(ort.InferenceSession(saved).run(None, feeds), expected)
    assert model_to_bytes(load_model(saved)) == saved, "saving again changes nothing"


NUMBER_TYPES = [t for t in DataType if t not in (DataType.UNDEFINED, DataType.STRING)]


@pytest.mark.parametrize("dtype", NUMBER_TYPES, ids=lambda dtype: dtype.text)
def test_initializers_of_every_element_type_keep_their_bits(dtype):
    bits = np.random.default_rng(int(dtype)).integers(0, 256, -(-7 * dtype.bits // 8), np.uint8)
    if dtype is DataType.BOOL:
        bits &= 1
    elif 7 * dtype.bits % 8:
        bits[-1] &= (1 << (7 * dtype.bits % 8)) - 1  # what lies behind the last element says nothing
    tensor = TensorProto(name="w", data_type=int(dtype), dims=[7], raw_data=bits.tobytes())
    model = build([], [], [untyped("w")], [tensor])  # an output may be an initializer
    saved = onnx.ModelProto.FromString(model_to_bytes(load_model(model)))
    [found] = saved.graph.initializer
    assert (found.data_type, list(found.dims), found.raw_data) == (int(dtype), [7], bits.tobytes())
    assert_equal(
        ort.InferenceSession(saved.SerializeToString()).run(None, {}), ort.InferenceSession(model).run(None, {})
    )


def test_texts_keep_every_character():
    texts = np.array(["", "é", "日本語", "a\0b", "\U0001f600"], object)
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[5])
    tensor.string_data.extend(text.encode() for text in texts)
    model = build([helper.make_node("Identity", ["w"], ["y"])], [], [untyped("y")], [tensor])
    assert ort.InferenceSession(model_to_bytes(load_model(model))).run(None, {})[0].tolist() == texts.tolist()


@pytest.mark.parametrize("width", [TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8])
def test_sparse_initializers_give_the_same_dense_values(width):
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.5, -2.0])
    indices = helper.make_tensor("i", width, [2, 2], [0, 1, 2, 0])
    model = build([helper.make_node("Identity", ["w"], ["y"])], [], [untyped("y")])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 2]))
    expected = np.array([[0, 1.5], [0, 0], [-2, 0]], np.float32)
    for source in (model, model_to_bytes(load_model(model))):
        np.testing.assert_array_equal(ort.InferenceSession(source).run(None, {})[0], expected)


@pytest.mark.parametrize("shape", [[0], [3, 0]])
@pytest.mark.parametrize("flat", [True, False])
def test_sparse_initializers_may_be_empty(shape, flat):
    values = helper.make_tensor("w", TensorProto.FLOAT, [0], [])
    indices = helper.make_tensor("i", TensorProto.INT64, [0] if flat else [0, len(shape)], [])
    model = build([helper.make_node("Identity", ["w"], ["y"])], [], [untyped("y")])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, shape))
    for source in (model, model_to_bytes(load_model(model))):
        found = ort.InferenceSession(source).run(None, {})[0]
        assert (found.dtype, found.shape) == (np.float32, tuple(shape))


def test_maps_and_declared_types_are_kept():
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    y = helper.make_value_info(
        "y", helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, value))
    )
    model = build([node], [x], [y])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    again = ort.InferenceSession(model_to_bytes(load_model(model)))
    assert [(i.type, i.shape) for i in again.get_inputs()] == [("tensor(float)", ["batch", 2])]
    assert again.get_outputs()[0].type == "seq(map(string,tensor(float)))"
    assert again.run(None, {"x": np.array([[1, 2]], np.float32)}) == [[{"a": 1.0, "b": 2.0}]]


def test_functions_with_attributes_and_overloads_are_kept():
    leaky = helper.make_node("LeakyRelu", ["x"], ["y"])
    leaky.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    imports = [helper.make_opsetid("", 21)]
    function = helper.make_function("local", "Slope", ["x"], ["y"], [leaky], imports, ["slope"])
    node = helper.make_node("Slope", ["x"], ["y"], domain="local", slope=0.25)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    model = build([node], [x], [untyped("y")], functions=[function])
    model.opset_import.append(helper.make_opsetid("local", 1))
    for source in (model, model_to_bytes(load_model(model))):
        found = ort.InferenceSession(source).run(None, {"x": np.array([-4, 4], np.float32)})[0]
        np.testing.assert_array_equal(found, [-1, 4])


def test_metadata_and_documentation_are_kept():
    model = build([helper.make_node("Relu", ["x"], ["y"], doc_string="why")], [untyped("x")], [untyped("y")])
    helper.set_model_props(model, {"author": "somebody"})
    model.producer_name, model.model_version, model.graph.doc_string = "tests", 7, "a graph"
    saved = onnx.ModelProto.FromString(model_to_bytes(load_model(model)))
    assert (saved.producer_name, saved.model_version, saved.graph.doc_string) == ("tests", 7, "a graph")
    assert {entry.key: entry.value for entry in saved.metadata_props} == {"author": "somebody"}
    assert saved.graph.node[0].doc_string == "why"


def test_large_weights_lie_beside_the_model_and_are_mapped_only_when_read(tmp_path):
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    small = np.ones(3, np.float32)
    model = build(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [untyped("y")],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(small, "unused")],
    )
    save_model(load_model(model), tmp_path / "m.onnx", external_file="m.weights")
    assert (tmp_path / "m.weights").stat().st_size >= weight.nbytes
    stored = {t.name: t for t in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer}
    assert stored["w"].data_location == TensorProto.EXTERNAL
    assert stored["unused"].data_location != TensorProto.EXTERNAL
    loaded = load_model(tmp_path / "m.onnx")
    [constant] = [v.constant for v in loaded.graph.initializers if v.name == "w"]
    array = constant.array()
    assert not array.flags.owndata, "the file is mapped, not copied"
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, weight)
    x = np.ones((1, 64), np.float32)
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    np.testing.assert_array_equal(ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})[0], expected)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin", "/etc/hostname", "link.bin", "linked/secret.bin", "a/../../secret.bin", "", "missing.bin",
        "loop.bin", "long" * 2000,
    ],
)  # fmt: skip
def test_external_data_outside_the_folder_is_refused(location, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 64)
    try:
        (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
        (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
        (folder / "loop.bin").symlink_to("pool.bin")
        (folder / "pool.bin").symlink_to("loop.bin")
    except OSError as error:
        pytest.skip(f"this system allows no symbolic links: {error}")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    model = build([helper.make_node("Identity", ["w"], ["y"])], [], [untyped("y")], [tensor])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ort.OrtError, match="w"):
        ort.InferenceSession(folder / "model.onnx")


def test_external_data_of_length_zero_is_as_long_as_the_tensor(tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "4"), ("length", "0")):
        tensor.external_data.add(key=key, value=value)
    model = build([helper.make_node("Identity", ["w"], ["y"])], [], [untyped("y")], [tensor])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert ort.InferenceSession(tmp_path / "model.onnx").run(None, {})[0].tolist() == [1, 2, 3, 4]


def test_six_bit_elements_are_stored_one_by_one_in_the_typed_field():
    stored = TensorProto(name="w", data_type=TensorProto.FLOAT6E2M3, dims=[3], int32_data=[1, 2, 63])
    model = build([], [], [untyped("w")], [stored])
    [found] = ort.InferenceSession(model).run(None, {})
    np.testing.assert_array_equal(found.astype(np.float32), numpy_helper.to_array(stored).astype(np.float32))
