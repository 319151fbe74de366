"""The native classes below onnxruntime's Python ones take arguments in its order, and give what they give there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")  # which the program runs on, too

PROGRAM = Path(__file__).with_name("native_calls.py")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What every call gives: onnxruntime's, and the drop-in's."""
    folder, found = tmp_path_factory.mktemp("native"), []
    for runner in ([], ["-m", "ort_core.dropin"]):
        target = folder / f"{len(found)}.json"
        subprocess.run([sys.executable, *runner, str(PROGRAM), str(target)], check=True, capture_output=True)
        found.append(json.loads(target.read_text(encoding="utf-8")))
    return found


def test_every_call_gives_what_it_gives_in_onnxruntime(outcomes):
    theirs, ours = outcomes
    refusals, own_refusals = theirs.pop("refusals"), ours.pop("refusals")
    assert len(theirs) >= 10
    assert ours == theirs
    for number, (kinds, own_kinds) in enumerate(zip(refusals, own_refusals, strict=True)):
        assert set(kinds) <= set(own_kinds), number
