"""Operators and passes of the user on the command line."""

from pathlib import Path

import numpy as np
import pytest

from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import save_model
from ort_core.testing.models import model_of

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
SILU = EXAMPLES / "custom_passes/fuse_silu.py"
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
    assert result.code == 1
    assert "nowhere.py" in result.err


def test_an_operator_that_no_library_has_is_told(ort, tmp_path) -> None:
    path = tmp_path / "unknown.onnx"
    save_model(model_of("g (float[2] x) => (float[2] y) { y = com.acme.Silly (x) }", opsets='"com.acme" : 1'), path)
    result = ort("run", path, "--ops", SILU)
    assert result.code == 1
    assert "Did you mean 'Silu'" in result.err
