"""Real models by the real DirectML, with the results that came with them; and what a session leaves behind."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from rig_provider import RigDmlProvider, rig_plugin, session_of

from ort_conformance import EpProfile
from ort_conformance.outcome import Outcome
from ort_conformance.subject import Subject
from ort_conformance.suites.model_files import folder_checks
from ort_core.testing.environments import installed

FOLDER = Path(os.environ.get("ORT_TEST_DATA", "")) / "models" / "real"
WHOLE = ["magika_v3_3", "mnist_cntk", "mnist_pytorch_cnn", "ultraface_rfb_320"]
IN_PARTS = ["silero_vad_v6", "squeezenet_winml"]


def finding_of(name: str):
    if not (FOLDER / name).is_dir():
        pytest.skip(f"ORT_TEST_DATA names no folder with models/real/{name}")
    (check,) = folder_checks(FOLDER / name)
    with installed(rig_plugin()):
        return check.run(Subject(EpProfile(RigDmlProvider.name)))


@pytest.mark.parametrize("name", WHOLE)
def test_a_network_runs_wholly_and_gives_its_results(rig, name):
    found = finding_of(name)

    assert found.outcome is Outcome.RAN, found.detail
    assert rig.counts.dispatches > 0


@pytest.mark.parametrize("name", IN_PARTS)
def test_a_network_runs_in_part_and_gives_its_results(rig, name):
    found = finding_of(name)

    assert found.outcome is Outcome.FELL_BACK, found.detail
    assert found.operators


def test_a_session_that_ends_gives_everything_back(rig):
    gc.collect()
    before = rig.ledger.alive()
    session = session_of("g (float[2,3] x) => (float[2,3] y) { e = Exp(x) y = Relu(e) }")
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    assert rig.ledger.alive()["ID3D12Device"] == 1

    session.close()
    del session
    gc.collect()

    assert rig.ledger.alive() == before
