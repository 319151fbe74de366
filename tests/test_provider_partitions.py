"""The table of partitions says what each provider takes, what it leaves and why, and what was not asked."""

import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from provider_partitions import PROVIDERS, page_of, placed

TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (float[n,4] x) => (float[n,4] y)
          { a = Relu(x)  b = Erf(a)  y = Neg(b) }"""


def test_a_model_is_counted_in_nodes_and_partitions(tmp_path):
    path = tmp_path / "three.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    row = placed(path, "CPUExecutionProvider")
    assert (row["nodes"], row["taken"], row["partitions"]) == (3, 3, 1)
    assert "NoSuchProvider" in placed(path, "NoSuchProvider")["missing"]


def test_the_page_tells_what_is_left_not_asked_and_ended():
    whole = {"nodes": 1200, "taken": 1200, "partitions": 1, "reason": ""}
    rows = dict.fromkeys(PROVIDERS, whole)
    rows |= {
        "OpenVINOExecutionProvider": {"nodes": 8, "taken": 6, "partitions": 2, "reason": "a | b"},
        "DmlExecutionProvider": {"missing": "not installed"},
        "CoreMLExecutionProvider": {"ended": "status -11: core dumped"},
    }
    page = page_of({"m": rows}, "openvino 1").splitlines()
    assert "| m | 1,200 of 1,200 in 1 | 1,200 of 1,200 in 1 | 6 of 8 in 2 | not asked | the process ended |" in page
    assert page[-3:] == [
        "| m | OpenVINO | 2 | a / b |",
        "| m | DirectML |  | not installed |",
        "| m | Core ML |  | status -11: core dumped |",
    ]
