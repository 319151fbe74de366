"""Operators and passes of the user on the command line."""

from pathlib import Path

import numpy as np
import pytest

from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import save_model
from ort_core.testing.models import model_of

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
SILU = EXAMPLES / "custom_passes/fuse_silu.py"
ENGINE = """
import numpy as np
from ort_core.cli.measuring.bench_worker import OpenAnswer

def open_engine(request):
    def run():
        (x,) = request.feeds.values()
        return [-x / (1 + np.exp(x))]
    return run, OpenAnswer("1", ("numpy",), 1, 1, tuple(run()))
"""
BODY = "g (float[2,3] x) => (float[2,3] y) { s = Sigmoid (x) y = Mul (s, x) }"


@pytest.fixture
def silu_model(tmp_path) -> Path:
    path = tmp_path / "silu.onnx"
    save_model(model_of(BODY), path)
    return path


@pytest.fixture
def _beside_the_pass(monkeypatch) -> None:
    monkeypatch.chdir(SILU.parent)
    monkeypatch.syspath_prepend(str(SILU.parent))  # what the command adds itself is taken away with it


@pytest.mark.usefixtures("_beside_the_pass")
@pytest.mark.parametrize("ops", ["fuse_silu.py", "fuse_silu"])
def test_a_users_fusion_to_a_users_operator_is_run_and_checked(ort, silu_model, tmp_path, ops) -> None:
    fused = tmp_path / "fused.onnx"
    result = ort("optimize", silu_model, fused, "--pass", "fuse_silu:FuseSilu", "--ops", ops, "--check", "--json")
    assert result.code == 0, result.err
    rows = {row["name"]: row for row in result.data["rows"]}
    assert rows["FuseSilu"]["counts"] == {"SiluRule": 1}
    assert [(node.domain, node.op_type) for node in load_model(fused).graph] == [("com.acme", "Silu")]
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npz"
    ran = ort("run", fused, "--ops", ops, "--input", tmp_path / "x.npy", "--output", out)
    assert ran.code == 0, ran.err
    for command in ("explain", "profile"):
        shown = ort(command, fused, "--ops", ops)
        assert shown.code == 0, shown.err
        assert "Silu" in shown.out
    np.testing.assert_allclose(np.load(out)["y"], x / (1 + np.exp(-x)), rtol=1e-5)


def test_a_library_that_is_not_there_is_told(ort, silu_model) -> None:
    result = ort("run", silu_model, "--ops", "nowhere.py")
    assert result.code == 2
    assert "nowhere.py" in result.err


def test_an_operator_that_no_library_has_is_told(ort, tmp_path) -> None:
    path = tmp_path / "unknown.onnx"
    save_model(model_of("g (float[2] x) => (float[2] y) { y = com.acme.Silly (x) }", opsets='"com.acme" : 1'), path)
    result = ort("run", path, "--ops", SILU)
    assert result.code == 1
    assert "Did you mean 'Silu'" in result.err


@pytest.fixture
def silu_op_model(tmp_path) -> Path:
    path = tmp_path / "silu_op.onnx"
    body = "g (float[2,N] x) => (float[2,N] y) { t = Neg (x) [op] y = com.acme.Silu (t) }"
    save_model(model_of(body, opsets='"" : 21, "com.acme" : 1'), path)
    return path


def test_commands_that_look_into_a_model_take_operators_too(ort, silu_op_model, tmp_path) -> None:
    sized = ("--dim", "N=3", "--ops", SILU, "--json")
    inspected = ort("inspect", silu_op_model, *sized)
    assert inspected.data["memory"]["num_values_of_unknown_size"] == 0
    compared = ort("compare", silu_op_model, *sized)
    assert (compared.code, compared.data["equal"]) == (0, True), compared.err
    cut = ort("extract", silu_op_model, tmp_path / "part", "--node", "op", *sized)
    assert (cut.code, cut.data["num_nodes"]) == (0, 1), cut.err
    measured = ort("bench", silu_op_model, "-n", "2", *sized)
    assert measured.code == 0, measured.err
    engine = tmp_path / "numpy_engine.py"
    engine.write_text(ENGINE, encoding="utf-8")
    in_turns = ort("bench", silu_op_model, "-n", "2", "--rounds", "5", "--against", engine, *sized)
    assert in_turns.code == 0, in_turns.err


def test_the_commands_say_what_is_missing_without_the_operators(ort, silu_op_model) -> None:
    result = ort("compare", silu_op_model, "--dim", "N=3")
    assert result.code == 1
    assert "Silu" in result.err
