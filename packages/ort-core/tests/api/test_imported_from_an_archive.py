"""The package is plain Python, so a program may import it from an archive, as zipapps do."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
from onnx import parser

import ort_core
from ort_core.cache import versions

PROGRAM = """
import sys
sys.path.insert(0, {archive!r})
import numpy as np, ort_core
assert ort_core.__file__.startswith({archive!r})
print(ort_core.InferenceSession({model!r}).run(None, {{"x": np.full((2, 3), 2, np.float32)}})[0].sum())
"""


def test_a_session_of_an_archive_compiles_and_recalls(tmp_path: Path) -> None:
    source, archive, model = Path(ort_core.__file__).parent, tmp_path / "core.zip", tmp_path / "model.onnx"
    with zipfile.ZipFile(archive, "w") as opened:
        for path in sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                opened.write(path, path.relative_to(source.parent))
    text = '<ir_version: 9, opset_import: ["": 17]> g (float[n,3] x) => (float[n,3] y) { t = Exp(x) y = Sqrt(t) }'
    model.write_bytes(parser.parse_model(text).SerializeToString())
    program = PROGRAM.format(archive=str(archive), model=str(model))
    environment = {**os.environ, "ORT_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        printed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, check=True)
        np.testing.assert_allclose(float(printed.stdout), 6 * np.e, rtol=1e-5)


def test_a_program_frozen_into_one_file_has_a_digest(tmp_path: Path) -> None:
    assert len(versions._archive_digest(str(tmp_path / "frozen" / "ort_core"))) == len(versions.package_digest())
