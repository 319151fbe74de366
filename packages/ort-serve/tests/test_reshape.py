"""Triton's ``reshape``: clients send and get other shapes than the model's, of the same elements."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from serve_fixtures import DOUBLER, running_server, write_model
from tritonclient.utils import InferenceServerException

BATCHED = """
max_batch_size: 8
dynamic_batching { }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] },
         { name: "total" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]
"""
TOML = """
inputs = [{name = "x", shape = [-1, 2, 2], reshape = [-1, 4]}]
outputs = [{name = "total", shape = [1, -1, 1], reshape = [-1]}]
"""
OPEN = """
<ir_version: 10, opset_import: ["" : 21]>
open (float[a, 6, b] x) => (float[a, 6, b] y) { y = Add (x, x) }
"""


@pytest.fixture
def folder(tmp_path):
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    return tmp_path / "doubler"


def asked(module, address: str, name: str, x: np.ndarray, *outputs: str):
    with module.InferenceServerClient(address) as client:
        tensor = module.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        found = client.infer(name, [tensor])
        return [found.as_numpy(output) for output in outputs]


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_clients_send_and_get_the_shapes_of_config_pbtxt(folder, module):
    (folder / "config.pbtxt").write_text(BATCHED)
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    with running_server(folder.parent) as running:
        address = running.http if module is tritonclient.http else running.grpc
        y, total = asked(module, address, "doubler", x, "y", "total")
        np.testing.assert_array_equal(y, 2 * x.reshape(3, 4))
        np.testing.assert_array_equal(total, x.sum(axis=(1, 2)).reshape(3, 1))
        with pytest.raises(InferenceServerException, match=r"takes shape \[-1, 2, 2\]; found \[3, 4\]"):
            asked(module, address, "doubler", x.reshape(3, 4), "y")


def test_metadata_and_configuration_tell_of_both_shapes(folder):
    (folder / "config.pbtxt").write_text(BATCHED)
    with running_server(folder.parent) as running, tritonclient.http.InferenceServerClient(running.http) as client:
        told = client.get_model_metadata("doubler")
        assert [tensor["shape"] for tensor in told["inputs"] + told["outputs"]] == [[-1, 2, 2], [-1, 4], [-1, 1]]
        config = client.get_model_config("doubler")
        assert config["input"][0] | {"name": ""} == {
            "name": "", "data_type": "TYPE_FP32", "dims": [2, 2], "reshape": {"shape": [4]},
        }  # fmt: skip
        assert config["output"][1]["reshape"] == {"shape": []}
        with tritonclient.grpc.InferenceServerClient(running.grpc) as rpc:
            found = rpc.get_model_config("doubler").config
            assert list(found.input[0].reshape.shape) == [4]
            assert found.output[1].HasField("reshape")
            assert not found.output[0].HasField("reshape")


def test_model_toml_reshapes_too(folder):
    (folder / "model.toml").write_text(TOML)
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    with running_server(folder.parent) as running:
        y, total = asked(tritonclient.http, running.http, "doubler", x, "y", "total")
    np.testing.assert_array_equal(y, 2 * x.reshape(2, 4))
    np.testing.assert_array_equal(total, x.sum(axis=(1, 2)).reshape(1, 2, 1))


def test_open_sizes_are_taken_over_in_their_order(tmp_path):
    write_model(OPEN, tmp_path / "open" / "1" / "model.onnx")
    (tmp_path / "open" / "model.toml").write_text(
        'inputs = [{name = "x", shape = [-1, 3, 2, -1, 1], reshape = [-1, 6, -1]}]'
    )
    x = np.arange(5 * 6 * 7, dtype=np.float32).reshape(5, 3, 2, 7, 1)
    with running_server(tmp_path) as running:
        (y,) = asked(tritonclient.http, running.http, "open", x, "y")
    np.testing.assert_array_equal(y, 2 * x.reshape(5, 6, 7))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('max_batch_size: 8 input { name: "x" dims: [ 5 ] reshape { shape: [ 4 ] } }', "do not hold the same elements"),
        ('max_batch_size: 8 input { name: "x" dims: [ 2, 2 ] reshape { shape: [ 2, 2 ] } }', "has shape [-1, 2, 2]"),
        ('input { name: "x" dims: [ -1, 2 ] reshape { shape: [ 8, 4 ] } }', "do not hold the same elements"),
        ('input { name: "x" reshape { shape: [ 8, 4 ] } }', "do not say its shape"),
    ],
)
def test_a_reshape_that_cannot_be_is_told(folder, text, told):
    (folder / "config.pbtxt").write_text(text)
    with running_server(folder.parent, http_port=None, grpc_port=None) as running:
        ((_, _, state, reason),) = running.server.repository.index()
    assert state == "UNAVAILABLE"
    assert told in reason
