"""What Core ML compiled for one session serves the next; coremltools is made up here, as Core ML runs on macOS only."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pytest

from ort_ep_coreml.compiled_models import are_same, opened


class MadeUpModels:
    """``coremltools.models``: compiles to a folder of its own, opens what was compiled by the same system."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls, self.system = folder, [], "one"

    def MLModel(self, path: str, **given: object) -> object:  # noqa: N802 - coremltools' name
        self.calls.append("compiled")
        made = self.folder / f"temporary{len(self.calls)}.mlmodelc"
        made.mkdir()
        (made / "system").write_text(self.system)
        return types.SimpleNamespace(get_compiled_model_path=lambda: str(made))

    def CompiledMLModel(self, path: str, **given: object) -> object:  # noqa: N802 - likewise
        if (Path(path) / "system").read_text() != self.system:
            raise RuntimeError("compiled by another system")
        self.calls.append("opened")
        return types.SimpleNamespace(**given)


@pytest.fixture
def models(tmp_path):
    return MadeUpModels(tmp_path)


def test_the_second_session_opens_what_the_first_compiled(models, tmp_path):
    for _ in range(3):
        opened(models, tmp_path / "m.mlpackage", {"compute_units": 1}, keeps_compiled=True)
    assert models.calls == ["compiled", "opened", "opened"]
    models.system = "another"
    for _ in range(2):
        opened(models, tmp_path / "m.mlpackage", {}, keeps_compiled=True)
    assert models.calls[3:] == ["compiled", "opened"]
    assert sorted(each.name for each in tmp_path.glob(".ort-*")) == []


def test_a_package_of_one_session_leaves_nothing_compiled(models, tmp_path):
    for _ in range(2):
        opened(models, tmp_path / "m.mlpackage", {}, keeps_compiled=False)
    assert models.calls == ["compiled", "compiled"]
    assert not (tmp_path / "m.mlmodelc").exists()


def test_a_folder_that_takes_nothing_costs_no_session(models, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.copytree", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    assert opened(models, tmp_path / "m.mlpackage", {}, keeps_compiled=True) is not None
    assert not (tmp_path / "m.mlmodelc").exists()


@pytest.mark.parametrize(
    ("left", "given", "same"),
    [
        (np.array([1, np.nan], np.float16), np.array([1, np.nan], np.float16), True),
        (np.array([0.0], np.float16), np.array([-0.0], np.float16), False),
        (np.array([1.0], np.float32), np.array([1.0], np.float16), True),
        (np.zeros((1, 2), np.float16), np.zeros((2, 1), np.float16), False),
    ],
)
def test_states_are_compared_by_their_bytes(left, given, same):
    assert are_same(left, given) is same
