"""What a provider is handed beside its partition: models without their weights, and the devices of the environment."""

import numpy as np
import onnx
import onnxruntime
import pytest

import ort_core as ort
from ort_core.plugin import Claim, CompileRequest, InvalidArgument
from ort_core.plugin.devices import Device, DeviceDirectory
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import EchoProvider, plugin_of


def model() -> onnx.ModelProto:
    graph = onnx.parser.parse_graph("g (float[2,4] x) => (float[2,4] y) { a = MatMul(x, w)  y = Add(a, b) }")
    graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "b"))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def test_external_weights_have_a_type_and_a_shape_and_no_data():
    view = view_of(typed_model(model()))
    written = onnx.load_from_string(view.to_onnx(view.nodes, weights="external", weight_names={"w"}))
    found = {each.name: each for each in written.graph.initializer}
    assert found["w"].data_location == onnx.TensorProto.EXTERNAL
    assert (list(found["w"].dims), found["w"].data_type, found["w"].raw_data) == ([4, 4], onnx.TensorProto.FLOAT, b"")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found["b"]), np.ones(4, np.float32))


def test_all_weights_are_external_when_none_is_named():
    view = view_of(typed_model(model()))
    written = onnx.load_from_string(view.to_onnx(view.nodes, weights="external"))
    assert {each.data_location for each in written.graph.initializer} == {onnx.TensorProto.EXTERNAL}


def test_a_claim_imports_the_domains_that_it_uses_only():
    source = model()
    source.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    view = view_of(typed_model(source))
    written = onnx.load_from_string(view.to_onnx(view.nodes))
    assert {each.domain: each.version for each in written.opset_import} == {"": 21}


def test_a_provider_reaches_the_devices_of_the_environment():
    requests: list[CompileRequest] = []

    class LookingProvider(EchoProvider):
        name = "LookingExecutionProvider"

        def compile(self, request):
            requests.append(request)
            return super().compile(request)

    with installed(plugin_of(LookingProvider, name="looking")) as environment:
        ort.InferenceSession(model().SerializeToString(), providers=[LookingProvider.name])
        devices = requests[0].services["devices"]
        assert isinstance(devices, DeviceDirectory)
        assert devices.get(Device("cpu")) is environment.devices.get(Device("cpu"))


def request_of_the_model() -> CompileRequest:
    view = view_of(typed_model(model()))
    return request_for(view, Claim(view.nodes, "claim"))


def test_a_request_gives_its_graph_as_onnx():
    request = request_of_the_model()
    content = request.to_onnx()
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    written = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert [each.name for each in written.get_inputs()] == [value.name for value in request.graph.inputs]
    assert [each.name for each in written.get_outputs()] == [value.name for value in request.graph.outputs]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(written.run(None, {"x": x})[0], x + 1)


def test_a_request_keeps_the_border_that_a_fusion_left_unread():
    request = request_of_the_model()
    unread = Value("unread", TensorType(DataType.FLOAT, (3,)))
    request.graph.set_inputs([unread, *request.graph.inputs])
    written = onnx.load_from_string(request.to_onnx(weights="inputs", weight_names={"w"}))
    assert [each.name for each in written.graph.input] == ["unread", "x", "w"]
    assert [each.name for each in written.graph.initializer] == ["b"]
    assert [value.name for value in request.graph.inputs] == ["unread", "x"], "the request itself is changed"


def test_what_is_changed_for_an_sdk_is_a_copy():
    request = request_of_the_model()
    written = request.to_onnx(legalize=lambda graph: graph.remove_initializer(graph.initializers[-1]))
    assert len(onnx.load_from_string(written).graph.initializer) == 1
    assert len(request.graph.initializers) == 2


def test_another_word_for_weights_is_refused():
    with pytest.raises(InvalidArgument, match="'inline', 'inputs', 'external'"):
        request_of_the_model().to_onnx(weights="input")


def test_a_request_shows_its_graph_as_a_claiming_provider_sees_one():
    view = request_of_the_model().view()
    assert [node.op_type for node in view.nodes] == ["MatMul", "Add"]
    assert view.constant(view.nodes[0].input(1)) is not None
    assert view.opset(view.nodes[0]) == 21
