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
