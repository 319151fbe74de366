"""Files in ORT format: onnxruntime reads what is written here, with the same results, and so does ort-core."""

from __future__ import annotations

import io
import runpy
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import ort_core
from ort_conformance.suites.backend_cases import node_cases
from ort_core import errors
from ort_tools.convert_onnx_models_to_ort import OptimizationStyle, convert_onnx_models_to_ort, main
from ort_tools.ort_format_model import write_ort_format

onnxruntime.set_default_logger_severity(4)

BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[n, 3] x) => (float[n, 3] y, float[2] z) <float[3] b = {1, 2, 3}> {
   shape = Constant<value_ints = [2]>()
   z = ConstantOfShape(shape)
   a = Add(x, b)
   y = If (c) <then_branch = t () => (float[n, 3] u) { p = Mul(a, b)  u = Clip(p, , p0)  },
               else_branch = e () => (float[n, 3] w) { w = Neg(a) }>
}
"""


def there(content, feeds):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def same(found, wanted):
    if isinstance(wanted, np.ndarray) and wanted.dtype.kind in "fc":
        return found.shape == wanted.shape and np.allclose(found, wanted, 1e-4, 1e-5, equal_nan=True)
    return str(found) == str(wanted)


@pytest.mark.parametrize("choice", [True, False])
def test_bodies_constants_and_inputs_left_out_are_read_by_both(choice):
    model = parser.parse_model(BRANCHES.replace("p0", "b0").replace("<float[3] b =", "<float b0 = {4}, float[3] b ="))
    content = write_ort_format(model)
    feeds = {"c": np.array(choice), "x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    for found in (there(content, feeds), ort_core.InferenceSession(content).run(None, feeds)):
        assert all(map(same, found, wanted))


@pytest.mark.filterwarnings("ignore")  # hostile numbers of onnx's cases
def test_node_cases_are_read_by_onnxruntime_with_its_own_results():
    cases = [each for each in (*node_cases(is_ml=False), *node_cases(is_ml=True)) if "@" not in each.name]
    equal, without_kernel = 0, []
    for case in [each for each in cases if not each.unjudged][::31]:
        model, feeds = case.model(), next(iter(case.data_sets())).feeds
        try:
            wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
                None, feeds
            )
        except Exception:  # noqa: BLE001, S112 - onnxruntime has no kernel: no evidence
            continue
        try:
            found = there(write_ort_format(model), feeds)
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
            without_kernel.append((case.name, str(error)))  # it has the operator as a function alone
            continue
        assert all(map(same, found, wanted)), case.name
        equal += 1
    assert equal > 25, (equal, without_kernel)
    assert all("Could not find an implementation" in text for _, text in without_kernel)
    assert len(without_kernel) < equal


def test_what_the_format_does_not_hold_is_refused():
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    graph = helper.make_graph(
        [helper.make_node("OptionalHasElement", ["x"], ["y"])], "g", [helper.make_value_info("x", optional)],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [])],
    )  # fmt: skip
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(errors.NotImplemented, match="optional_type"):
        write_ort_format(model)


OLD_CALL = """
<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = own.Old (x) }
<domain: "own", opset_import: ["" : 12]> Old (a) => (b) { b = Softmax <axis = 1> (a) }
"""


def test_functions_of_another_opset_are_inlined_in_that_of_the_model():
    content = write_ort_format(parser.parse_model(OLD_CALL))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 5
    powers = np.exp(x.astype(np.float64))
    wanted = powers / powers.sum((1, 2), keepdims=True)  # an older Softmax sums over all axes from the given one on
    for (found,) in (there(content, {"x": x}), ort_core.InferenceSession(content).run(None, {"x": x})):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_function_that_imports_another_version_of_its_own_operators_is_refused_by_name():
    model = parser.parse_model(OLD_CALL)
    model.functions[0].opset_import.add(domain="com.microsoft", version=2)
    model.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises(errors.NotImplemented, match=r"own\.Old cannot be inlined"):
        write_ort_format(model)


@pytest.fixture
def folder(tmp_path):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 3] x) => (float[n, 3] y) <float[3] b = {1, 2, 3}> { a = Add(x, b)  y = Relu(a) }
    """
    (tmp_path / "models/inner").mkdir(parents=True)
    onnx.save(parser.parse_model(text), tmp_path / "models/inner/first.onnx")
    onnx.save(parser.parse_model(text), tmp_path / "models/old.optimized.onnx")
    return tmp_path / "models"


def test_a_folder_is_converted_with_the_list_of_its_operators(folder, tmp_path, capsys):
    styles = [OptimizationStyle.Fixed, OptimizationStyle.Runtime]
    convert_onnx_models_to_ort(folder, tmp_path / "out", styles, save_optimized_onnx_model=True)
    names = sorted(str(each.relative_to(tmp_path / "out")) for each in (tmp_path / "out").rglob("*.*"))
    assert [each.replace("\\", "/") for each in names] == [
        "inner/first.optimized.onnx", "inner/first.ort", "inner/first.with_runtime_opt.optimized.onnx",
        "inner/first.with_runtime_opt.ort", "required_operators.config", "required_operators.with_runtime_opt.config",
    ]  # fmt: skip
    assert "ai.onnx;14;Add,Relu" in (tmp_path / "out/required_operators.config").read_text(encoding="utf-8")
    assert "Converted 1/1 models" in capsys.readouterr().out
    feeds = {"x": np.array([[-5, 0, 5]], np.float32)}
    for name in ("first.ort", "first.with_runtime_opt.ort"):
        found = onnxruntime.InferenceSession(str(tmp_path / "out/inner" / name), providers=["CPUExecutionProvider"])
        assert found.run(None, feeds)[0].tolist() == [[0, 2, 8]]
        assert ort_core.InferenceSession(str(tmp_path / "out/inner" / name)).run(None, feeds)[0].tolist() == [[0, 2, 8]]


def test_one_broken_model_may_be_passed_over(folder, capsys):
    (folder / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(errors.OrtError):
        main([str(folder), "--optimization_style", "Fixed"])
    main([str(folder), "--optimization_style", "Fixed", "--allow_conversion_failures"])
    assert "Converted 1/2 models" in capsys.readouterr().out


def test_a_folder_without_models_is_told(tmp_path):
    with pytest.raises(ValueError, match="No model files"):
        main([str(tmp_path), "--optimization_style", "Fixed"])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        main([str(tmp_path / "nowhere")])


def test_the_module_is_a_program(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["convert_onnx_models_to_ort", "--help"])
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delitem(sys.modules, "ort_tools.convert_onnx_models_to_ort")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("ort_tools.convert_onnx_models_to_ort", run_name="__main__")
    assert ended.value.code == 0


def test_nodes_without_a_named_output_are_left_out():
    model = parser.parse_model(BRANCHES.replace("p0", "b0").replace("<float[3] b =", "<float b0 = {4}, float[3] b ="))
    for node in (helper.make_node("Constant", [], [""], value_float=1.0), helper.make_node("Neg", ["x"], [""])):
        model.graph.node.insert(0, node)
    feeds = {"c": np.array(True), "x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    found = there(write_ort_format(model), feeds)
    assert [each.shape for each in found] == [(2, 3), (2,)]
