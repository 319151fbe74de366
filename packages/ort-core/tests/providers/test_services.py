"""What a provider is handed beside its partition: models without their weights, and the devices of the environment."""

import numpy as np
import onnx

import ort_core as ort
from ort_core.plugin import CompileRequest
from ort_core.plugin.devices import Device, DeviceDirectory
from ort_core.testing.claims import typed_model, view_of
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
