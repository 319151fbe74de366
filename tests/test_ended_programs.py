"""Programs of the packages: a signal in the middle of writing leaves what was there, and gives its code."""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) {y = Relu(x)}'
PROGRAMS = {
    "ort_tools.make_dynamic_shape_fixed": "--dim_param N --dim_value 3 {source} {target}",
    "ort_tools.onnx_randomizer": "-m {source} -o {target}",
    "ort_transformers.optimizer": "--input {source} --output {target} --opt_level 0",
}
SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


@pytest.fixture
def own_handlers():
    """Let this process heed signals as a program does, and put back what was there."""
    numbers = [getattr(signal, name) for name in SIGNALS]
    before = {number: signal.getsignal(number) for number in numbers}
    hook = sys.unraisablehook
    for number in numbers:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_signal_in_the_middle_of_writing_leaves_the_old_file(tmp_path, monkeypatch, capsys, program, name):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(parser.parse_model(MODEL), source)
    target.write_text("old")
    replace, number = Path.replace, getattr(signal, name)

    def interrupted(self: Path, place: Path) -> Path:
        assert self.stat().st_size, "nothing is written yet"
        signal.raise_signal(number)
        return replace(self, place)

    monkeypatch.setattr(Path, "replace", interrupted)
    words = PROGRAMS[program].split()
    monkeypatch.setattr(sys, "argv", [program, *(each.format(source=source, target=target) for each in words)])
    monkeypatch.delitem(sys.modules, program, raising=False)  # other tests import it; runpy warns of that
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(program, run_name="__main__")
    assert ended.value.code == 128 + number
    assert f"ended by {name}" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.onnx", "out.onnx"]
    assert target.read_text() == "old"
