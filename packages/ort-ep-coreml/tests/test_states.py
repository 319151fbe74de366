"""States: what a package keeps inside, computed in steps, and what cannot be one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import typer
from typer.testing import CliRunner

from ort_core.plugin import EPFail, InvalidArgument
from ort_ep_coreml.commands.export_coreml import export_coreml
from ort_ep_coreml.evaluation.evaluator import Evaluator
from ort_ep_coreml.provider import CoreMlExecutionProvider

pytestmark = pytest.mark.usefixtures("sdk")
STEPS = (
    "g (float16[2,3] past, float16[2,3] x) => (float16[2,3] present, float16[2,3] y) "
    "{ present = Add(past, x)  y = Mul(present, present) }"
)
KEPT = {"States": "past=present", "DeploymentTarget": "iOS18"}


def test_a_session_hands_states_in_and_out(session):
    past, x = np.full((2, 3), 2, np.float16), np.full((2, 3), 0.5, np.float16)
    with session(STEPS, **KEPT) as opened:
        present, y = opened.run(None, {"past": past, "x": x})
        assert present.dtype == np.float16
        assert present.tolist() == [[2.5] * 3] * 2
        assert y.tolist() == [[6.25] * 3] * 2
        assert opened.run(None, {"past": present, "x": x})[0].tolist() == [[3.0] * 3] * 2


def test_a_package_with_states_has_no_such_input_and_goes_on_where_it_was(parse, tmp_path):
    app = typer.Typer()
    app.command()(export_coreml)
    source, target = tmp_path / "model.onnx", tmp_path / "model.mlpackage"
    onnx.save(parse(STEPS), source)
    arguments = [str(source), "-o", str(target), "--states", "past=present", "--target", "iOS18"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "inputs x; outputs y; states past" in result.output
    evaluator, kept = Evaluator.of_package(target, "iOS18"), np.zeros((2, 3), np.float16)
    for step in (1, 2, 3):
        found = evaluator.predict({"x": np.ones((2, 3), np.float16), "past": kept})
        kept = found["past"]
        assert kept.tolist() == [[step] * 3] * 2
        assert found["y"].tolist() == [[step * step] * 3] * 2


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        (STEPS, {"States": "past=present"}, "DeploymentTarget=iOS18"),
        (STEPS, {**KEPT, "States": "past=y2"}, "its outputs are"),
        (STEPS.replace("float16", "float"), KEPT, "Precision=FLOAT16"),
        (
            "g (float16[1,n] past, float16[1,2] x) => (float16[1,m] present) { present = Concat<axis=1>(past, x) }",
            KEPT,
            "one and fixed",
        ),
    ],
)
def test_what_cannot_be_a_state_is_refused_with_the_reason(session, text, options, why):
    with pytest.raises(EPFail, match=why):
        session(text, **options)


@pytest.mark.parametrize("text", ["past", "past=", "a=b, a=c", "a=c, b=c"])
def test_pairs_that_say_nothing_are_refused_where_they_are_given(text):
    with pytest.raises(InvalidArgument, match="INPUT=OUTPUT"):
        CoreMlExecutionProvider({"States": text})


def test_a_state_is_written_where_it_is_another_than_the_last_run_left(monkeypatch, tmp_path):
    import coremltools

    from ort_ep_coreml import _sdk

    written: list[str] = []

    class State(dict):
        def write_state(self, name: str, value: np.ndarray) -> None:
            written.append(name)
            self[name] = value

        def read_state(self, name: str) -> np.ndarray:
            return self[name]

    class Doubled:
        def __init__(self, path: str, **given: object) -> None: ...

        def make_state(self) -> State:
            return State()

        def predict(self, features: dict, state: State) -> dict:
            assert set(features) == {"x"}
            state["past"] = state["past"] * 2
            return {"y": features["x"]}

    monkeypatch.setattr(coremltools.models, "MLModel", Doubled)
    model = _sdk.Model(tmp_path / "m.mlpackage", "ALL", "Default", False, ("past",))
    found = model.predict({"x": np.ones(1), "past": np.full(2, 3.0)})
    assert found["past"].tolist() == [6, 6]
    assert found["y"].tolist() == [1]
    again = model.predict({"x": np.ones(1), "past": found["past"]})
    assert again["past"].tolist() == [12, 12]
    assert written == ["past"], "what the last run left is there"
    again["past"][:] = 1
    assert model.predict({"x": np.ones(1), "past": again["past"]})["past"].tolist() == [2, 2]
    assert written == ["past", "past"]
