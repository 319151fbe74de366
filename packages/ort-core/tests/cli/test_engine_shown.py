"""Commands that show the engine: steps, near misses, graphs behind passes, code."""


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
