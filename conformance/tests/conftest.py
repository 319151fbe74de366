"""Makes the modules beside the suite's own tests importable, and puts fake packages on disk."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ort_conformance.suites import backend_cases
from ort_core.testing.environments import installed

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def kept_node_cases() -> None:
    """Put onnx's node cases, which this process has made for its own tests, where processes of the tests look first."""
    backend_cases._loaded.__wrapped__()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Return a function that installs a plugin module for this process and its children, as a package would.

    It takes the module's name and text, and returns the name.
    """
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)

    def write(name: str, text: str) -> str:
        (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        facts = folder / f"{name}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (facts / "entry_points.txt").write_text(f"[ort.plugins]\n{name} = {name}\n", encoding="utf-8")
        return name

    with installed():
        yield write
