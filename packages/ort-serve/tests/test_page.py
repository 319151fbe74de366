"""The page in a headless browser, where there is one."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from serve_fixtures import DOUBLER, running_server, write_model

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_shows_the_models_and_a_form_for_their_inputs(tmp_path):
    model = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(model, grpc_port=None) as running:
        command = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}",
            "--virtual-time-budget=4000", "--dump-dom", f"http://{running.http}/",
        ]  # fmt: skip
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert "<td>doubler</td>" in found
    assert '<td class="ready">READY</td>' in found
    assert 'data-data="x"' in found
    assert "FP32, shape [-1,4]" in found
    assert "<path d=" in found
