"""Settings that tell of other inputs and outputs than the model has: the model is not served, and says why."""

from __future__ import annotations

import pytest
from serve_fixtures import DOUBLER, running_server, write_model

FITS = {
    "config.pbtxt": [
        'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "total" dims: [ ] }',
        'max_batch_size: 0 input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }',
        'max_batch_size: 0 input { name: "x" data_type: TYPE_FP32 dims: [ 16, 4 ] }',
        'max_batch_size: 8 output [ { name: "total" dims: 1 reshape { shape: [ ] } } ]',
    ],
    "model.toml": ['inputs = [{name = "x", datatype = "FP32", shape = [-1, 4]}]', 'outputs = [{name = "total"}]'],
}
DIFFERS = {
    "config.pbtxt": [
        ('max_batch_size: 8 input { name: "z" dims: 4 }', "name input 'z'; the model's inputs are 'x'"),
        ('max_batch_size: 8 output { name: "z" dims: 4 }', "name output 'z'; the model's outputs are 'y', 'total'"),
        ('max_batch_size: 8 input { name: "x" data_type: TYPE_INT64 dims: 4 }', "'x' is INT64; it is FP32"),
        ('max_batch_size: 8 input { name: "x" dims: [ -1, 4 ] }', "'x' has shape [-1, -1, 4]; the model's is [-1, 4]"),
        ('max_batch_size: 8 output { name: "y" dims: 5 }', "'y' has shape [-1, 5]; the model's is [-1, 4]"),
        ('max_batch_size: 0 input { name: "x" dims: 4 }', "'x' has shape [4]; the model's is [-1, 4]"),
        ('max_batch_size: 8 input { name: "x" dims: -1 }', "'x' has shape [-1, -1]; the model's is [-1, 4]"),
    ],
    "model.toml": [
        ('inputs = [{name = "x", shape = [2, 5]}]', "'x' has shape [2, 5]"),
        ('outputs = [{name = "y", datatype = "FP16"}]', "'y' is FP16; it is FP32"),
    ],
}


@pytest.fixture
def folder(tmp_path):
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    return tmp_path / "doubler"


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in FITS.items() for text in texts])
def test_a_model_that_is_as_its_settings_say_is_served(folder, file, text):
    (folder / file).write_text(text)
    with running_server(folder.parent, http_port=None, grpc_port=None) as running:
        assert running.server.repository.index() == [("doubler", "1", "READY", "")]


@pytest.mark.parametrize(("file", "case"), [(file, case) for file, cases in DIFFERS.items() for case in cases])
def test_a_model_that_is_not_as_its_settings_say_is_refused(folder, file, case):
    (folder / file).write_text(case[0])
    with running_server(folder.parent, http_port=None, grpc_port=None) as running:
        ((_, _, state, reason),) = running.server.repository.index()
    assert state == "UNAVAILABLE"
    assert case[1] in reason


def test_an_input_that_the_settings_leave_out_is_told(tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    sum (float[n] a, float[n] b) => (float[n] y) { y = Add (a, b) }
    """
    write_model(text, tmp_path / "sum" / "1" / "model.onnx")
    (tmp_path / "sum" / "config.pbtxt").write_text('input { name: "a" data_type: TYPE_FP32 dims: -1 }')
    with running_server(tmp_path, http_port=None, grpc_port=None) as running:
        assert "takes input 'b', which its settings do not name" in running.server.repository.index()[0][3]
