"""`ort run`: values from files and made up, outputs shown and saved, and what a mistake is answered with."""

import json

import numpy as np
import pytest

from ort_core.onnx_io.value_file import write_value

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
W = np.arange(1, 9, dtype=np.float64).reshape(4, 2)
Y = np.maximum(X, 0) @ W


def test_run_saves_what_the_model_computes_from_an_npy_file(ort, model_path, tmp_path):
    np.save(tmp_path / "x.npy", X)
    result = ort("run", model_path("small"), "-i", tmp_path / "x.npy", "-o", tmp_path / "out.npz")
    assert result.code == 0, result.err
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], Y)


@pytest.mark.parametrize("ending", ["npz", "json", "pb"])
def test_run_reads_the_same_input_from_every_kind_of_file(ort, model_path, tmp_path, ending):
    path = tmp_path / f"in.{ending}"
    if ending == "npz":
        np.savez(path, x=X)
    elif ending == "json":
        path.write_text(json.dumps({"x": X.tolist()}))
    else:
        path.write_bytes(write_value(X, "x", None))
    result = ort("run", model_path("small"), "-i", f"x={path}", "-o", tmp_path / "out.json", "--json")
    assert result.code == 0, result.err
    assert result.data["outputs"]["y"]["max"] == Y.max()
    np.testing.assert_allclose(json.loads((tmp_path / "out.json").read_text())["y"], Y)


def test_run_reads_a_folder_laid_out_as_test_data(ort, model_path, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "input_0.pb").write_bytes(write_value(X, "", None))
    result = ort("run", model_path("small"), "-i", tmp_path / "data", "--json")
    assert result.data["inputs"]["x"]["origin"] == "from a file"
    assert result.data["outputs"]["y"]["first"] == Y.reshape(-1)[:6].tolist()


def test_run_resizes_an_image_and_scales_it_to_one(ort, tmp_path):
    image = pytest.importorskip("PIL.Image")
    from ort_core.onnx_io.save import save_model
    from ort_core.testing.models import model_of

    save_model(model_of("g (float[N, 3, 2, 5] x) => (float[N, 3, 2, 5] y) { y = Identity(x) }"), tmp_path / "m.onnx")
    image.new("RGB", (10, 4), (255, 0, 51)).save(tmp_path / "red.png")
    result = ort("run", tmp_path / "m.onnx", "-i", tmp_path / "red.png", "-o", tmp_path / "o.npz")
    assert result.code == 0, result.err
    found = np.load(tmp_path / "o.npz")["y"]
    np.testing.assert_allclose(found[0, :, 0, 0], [1, 0, 0.2], atol=1e-6)
    assert found.shape == (1, 3, 2, 5)
    assert "red.png is resized from 10x4 to 5x2" in result.err


def test_an_archive_gives_its_arrays_to_the_inputs_of_their_names_only(ort, model_path, tmp_path):
    np.savez(tmp_path / "unnamed.npz", X)
    assert ort("run", model_path("small"), "-i", tmp_path / "unnamed.npz").code == 0
    np.savez(tmp_path / "other.npz", xx=X)
    other = ort("run", model_path("small"), "-i", tmp_path / "other.npz")
    assert other.code == 2
    assert "no input 'xx'" in other.err
    np.savez(tmp_path / "empty.npz")
    empty = ort("run", model_path("small"), "-i", tmp_path / "empty.npz")
    assert empty.code == 1
    assert "has no arrays" in empty.err


def test_random_inputs_respect_shape_dim_and_seed(ort, model_path):
    first = ort("run", model_path("small"), "--dim", "N=3", "--seed", "7", "--json").data
    again = ort("run", model_path("small"), "--shape", "x=3x4", "--seed", "7", "--json").data
    other = ort("run", model_path("small"), "--dim", "N=3", "--seed", "8", "--json").data
    assert first["outputs"]["y"]["shape"] == [3, 2]
    assert first["outputs"] == again["outputs"]
    assert first["outputs"] != other["outputs"]


def test_random_token_ids_index_their_table_and_the_mask_covers_past_and_sequence(ort, model_path):
    data = ort("run", model_path("tokens"), "--dim", "past_sequence=5", "--dim", "sequence=100", "--json").data
    inputs = data["inputs"]
    assert inputs["input_ids"]["min"] == 0
    assert inputs["input_ids"]["max"] == 6
    assert inputs["attention_mask"] == {**inputs["attention_mask"], "shape": [1, 105], "min": 1, "max": 1}
    assert inputs["position_ids"]["first"][0] == 5
    assert inputs["past"]["shape"] == [1, 2, 5, 3]


def test_string_inputs_get_words(ort, model_path):
    data = ort("run", model_path("words"), "--json").data
    assert data["outputs"]["same"]["first"] == data["inputs"]["text"]["first"]


def test_sizes_that_nothing_tells_are_tried_larger_until_the_model_runs(ort, model_path):
    data = ort("run", model_path("sound"), "--json").data
    assert data["inputs"]["sound"]["shape"] == [1, 64]


def test_a_failing_run_says_what_to_give_and_exits_with_1(ort, model_path):
    result = ort("run", model_path("failing"))
    assert result.code == 1
    assert result.out == ""
    assert "error:" in result.err
    assert "Reshape" in result.err
    assert "--shape" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--dim", "M=3"], "no dimension 'M'"),
        (["--dim", "N=three"], "is not a size"),
        (["--shape", "X=1x4"], "Did you mean 'x'?"),
        (["--shape", "x=1x5"], "does not fit"),
        (["-i", "missing.npy"], "there is no file 'missing.npy'"),
        (["-i", "z=missing.npy"], "no input 'z'"),
        (["-o", "out.txt"], "must end in .npz or .json"),
        (["--provider", "cpuu"], "Did you mean 'cpu'?"),
        (["--fetch", "yy"], "Did you mean 'y'?"),
        (["--levle", "all"], "--level"),
    ],
)
def test_wrong_options_exit_with_2_and_a_hint(ort, model_path, arguments, expected):
    result = ort("run", model_path("small"), *arguments)
    assert result.code == 2
    assert expected in " ".join(result.err.replace("│", " ").split())


def test_a_misspelt_model_is_answered_with_near_names(ort, model_path, tmp_path):
    model_path("small")
    result = ort("run", tmp_path / "smal.onnx")
    assert result.code == 2
    assert "small.onnx" in result.err


def test_an_input_of_unknown_rank_is_answered_with_the_option_to_give(ort, tmp_path):
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "m.onnx")
    refused = ort("run", tmp_path / "m.onnx")
    assert refused.code == 2
    assert "--shape x=2x3" in " ".join(refused.err.replace("│", " ").split())
    assert ort("run", tmp_path / "m.onnx", "--shape", "x=2x3", "--json").data["outputs"]["y"]["shape"] == [2, 3]


def test_a_file_that_is_no_model_is_an_error_without_traceback(ort, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 50)
    result = ort("run", tmp_path / "bad.onnx")
    assert result.code == 1
    assert "Protobuf parsing failed" in result.err
    assert "Traceback" in ort("--debug", "run", tmp_path / "bad.onnx").err


def test_feeds_of_the_wrong_type_name_the_input(ort, model_path, tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float64))
    result = ort("run", model_path("small"), "-i", tmp_path / "x.npy")
    assert result.code == 1
    assert "x" in result.err
    assert "double" in result.err
