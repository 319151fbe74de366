"""Commands that show the engine: steps, near misses, graphs behind passes, code."""

import numpy as np
import onnx
from onnx import helper

from ort_core.ir.printer import format_model
from ort_core.onnx_io.load import load_model


def test_inspect_lists_the_steps_for_the_sizes_that_are_given(ort, model_path):
    data = ort("inspect", model_path("small"), "--steps", "--dim", "N=10", "--threads", "1", "--json").data
    (partition,) = data["partitions"]
    product = partition["steps"][-1]
    assert data["sizes"] == {"N": 10}
    assert partition["provider"] == "CPUExecutionProvider"
    assert product["operators"].startswith("MatMul")
    assert product["result"] == "y float[10, 2]"
    assert product["flops"] == 2 * 10 * 4 * 2
    assert product["threads"] == "1"
    assert "y float[10, 2]" in ort("inspect", model_path("small"), "--steps", "--dim", "N=10").out


def test_options_of_steps_are_refused_without_it(ort, model_path):
    result = ort("inspect", model_path("small"), "--threads", "2")
    assert result.code == 2
    assert "--steps" in result.err


def test_explain_and_optimize_tell_of_near_misses_when_asked(ort, model_path):
    assert ort("explain", model_path("sound"), "--json").data["near_misses"] is None
    assert ort("explain", model_path("small"), "--fusions", "--json").data["near_misses"] == []
    assert "no fusion nearly fired" in ort("optimize", model_path("small"), "--explain-fusions").out


def test_optimize_dumps_the_graph_behind_each_pass_and_stops_where_it_is_told(ort, model_path, tmp_path):
    whole = tmp_path / "whole"
    data = ort("optimize", model_path("small"), "--dump", str(whole), "--json").data
    assert data["dumped"][0] == "000_as_loaded.txt"
    eliminated = next(name for name in data["dumped"] if name.endswith("EliminateIdentity.txt"))
    assert "Identity" in (whole / data["dumped"][0]).read_text()
    assert "Identity(" not in (whole / eliminated).read_text()
    index = (whole / "passes.txt").read_text().splitlines()
    assert len(index) == data["num_passes"] + 1

    number = int(eliminated[:3])
    before, behind = tmp_path / "before", tmp_path / "behind"
    for stop, folder, nodes in ((number - 1, before, 3), (number, behind, 2)):
        output = str(tmp_path / f"{stop}.onnx")
        told = ort("optimize", model_path("small"), output, "--stop-after", str(stop), "--dump", str(folder), "--json")
        assert told.data["num_passes"] == stop
        assert ort("inspect", output, "--json").data["num_nodes"] == nodes
    assert (behind / eliminated).read_text() == (whole / eliminated).read_text()


def test_a_folder_with_files_in_it_is_not_dumped_to(ort, model_path, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    result = ort("optimize", model_path("small"), "--dump", str(tmp_path))
    assert result.code == 2
    assert "not empty" in result.err


def test_compile_writes_the_code_of_every_kernel_that_the_steps_name(ort, model_path, tmp_path):
    steps = ort("inspect", model_path("small"), "--steps", "--json").data["partitions"][0]["steps"]
    names = {step["kernel"] for step in steps}
    for form, mark in (("llvm", "define "), ("llvm-optimized", "define "), ("asm", "ret")):
        (partition,) = ort("compile", model_path("small"), "--emit", form, "--json").data["partitions"]
        assert set(partition["kernels"]) == names, form
        for name, text in partition["kernels"].items():
            assert name in text, form
            assert mark in text, form
    output = tmp_path / "code.s"
    assert ort("compile", model_path("small"), "--emit", "asm", "--kernel", "product", "-o", str(output)).code == 0
    assert output.read_text().count("; kernel ") == 1
    assert not (tmp_path / "small_ctx.onnx").exists(), "no model is written"


def test_compile_says_which_forms_and_kernels_there_are(ort, model_path):
    assert "llvm-optimized" in ort("compile", model_path("small"), "--emit", "ptx").err
    assert "--steps" in ort("compile", model_path("small"), "--emit", "asm", "--kernel", "nothing").err
    assert ort("compile", model_path("small"), "--kernel", "product").code == 2


def test_code_of_bodies_is_shown_too(ort, model_path):
    steps = ort("inspect", model_path("branch"), "--steps", "--json").data["partitions"][0]["steps"]
    inner = {step["kernel"] for step in steps if step["path"] and step["kernel"]}
    assert inner, "the else branch is compiled"
    (partition,) = ort("compile", model_path("branch"), "--emit", "llvm", "--json").data["partitions"]
    assert inner <= set(partition["kernels"])


MOVED_AND_IN_PARTS = """<ir_version: 8, opset_import: ["" : 18]>
g (float[4,32] x) => (float[4,32] y, float[32,4] t) <float half = {0.5}> {
    q, s, z = DynamicQuantizeLinear (x)
    d = DequantizeLinear (q, s, z)
    m = Mul (d, half)
    y = Exp (m)
    t = Transpose <perm = [1, 0]> (x)
}"""


def test_steps_name_what_they_leave_and_a_profile_gives_the_output_of_fused_steps(ort, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MOVED_AND_IN_PARTS), path)
    (partition,) = ort("inspect", path, "--steps", "--json").data["partitions"]
    results = [step["result"] for step in partition["steps"]]
    assert "part of q uint8[4, 32]" in results
    assert "t float[32, 4]" in results, "a step that only moves has no node of its own"
    rows = ort("profile", path, "-n", "1", "--json").data["nodes"]
    (fused,) = (row for row in rows if "Mul+Exp" in row["operator"])
    assert fused["output"] == "float[4, 32]"


OPERATOR = '''"""An operator."""
import numpy as np
from numpy.typing import NDArray
import ort_core as ort


@ort.custom_op("my", "Twice")
def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return twice x."""
    return 2 * x
'''


def test_steps_and_code_are_shown_of_models_with_operators_of_the_user(ort, tmp_path):
    (tmp_path / "mine.py").write_text(OPERATOR)
    text = """<ir_version: 8, opset_import: ["" : 18, "my" : 1]> g (float[4, 8] x) => (float[4, 8] y, float[4, 8] t) {
        t = my.Twice (x)
        y = Softmax <axis = 1> (x)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    own = ("--ops", str(tmp_path / "mine.py"))
    (partition,) = ort("inspect", tmp_path / "m.onnx", "--steps", *own, "--json").data["partitions"]
    assert {step["operators"] for step in partition["steps"]} == {"Softmax", "Twice"}
    assert "define" in ort("compile", tmp_path / "m.onnx", "--emit", "llvm", *own).out


def test_steps_of_winograds_algorithm_are_told_apart_and_by_the_convolution(ort, tmp_path):
    weights = helper.make_tensor("w", 1, (64, 64, 3, 3), np.ones(64 * 64 * 9, np.float32).tobytes(), raw=True)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "wide", pads=[1] * 4)
    ends = [[helper.make_tensor_value_info(name, 1, (1, 64, 24, 24))] for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", *ends, [weights]), ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    (partition,) = ort("inspect", tmp_path / "m.onnx", "--steps", "--json").data["partitions"]
    told = {step["operators"]: step["result"] for step in partition["steps"]}
    assert told["Conv+WinogradTiles"] == told["Conv+WinogradProduct"] == "part of y float[1, 64, 24, 24]"
    assert told["Conv+WinogradImages"] == "y float[1, 64, 24, 24]"
    rows = ort("profile", tmp_path / "m.onnx", "-n", "1", "--json").data["nodes"]
    assert {row["name"].removesuffix("+…") for row in rows if "Winograd" in row["operator"]} == {"wide"}


def test_steps_say_where_reals_lie_as_integers(ort, tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (uint8[1, 32, 8, 8] x) => (uint8[1, 32, 4, 4] y)
        <float s = {0.5}, uint8 z = {3}> {
        d = DequantizeLinear (x, s, z)
        m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
        y = QuantizeLinear (m, s, z)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    (partition,) = ort("inspect", tmp_path / "m.onnx", "--steps", "--json").data["partitions"]
    (pooled,) = (step for step in partition["steps"] if step["operators"] == "MaxPool")
    assert pooled["result"] == "m float[1, 32, 4, 4] as uint8"


def test_small_constants_are_shown_in_texts_of_graphs():
    text = format_model(load_model(onnx.parser.parse_model(MOVED_AND_IN_PARTS)))
    assert "const half: float[] = 0.5" in text
    assert "perm=(1, 0)" in text
