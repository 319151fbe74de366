"""ort-ep-cuda12 has the modules, extras and entry point of ort-ep-cuda, and CuPy for CUDA 12."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
HERE, CUDA12 = (
    tomllib.loads((PACKAGE / place / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for place in (".", "cuda12")
)


def test_the_distributions_differ_in_the_version_of_cuda_alone() -> None:
    for key in ("dependencies", "entry-points"):
        assert CUDA12[key] == _for_cuda12(HERE[key])
    for extra in ("toolkit", "cudnn"):
        assert CUDA12["optional-dependencies"][extra] == _for_cuda12(HERE["optional-dependencies"][extra])


def _for_cuda12(found: object) -> object:
    if isinstance(found, str):
        return found.replace("cuda13x", "cuda12x").replace("cu13", "cu12")
    if isinstance(found, list):
        return [_for_cuda12(each) for each in found]
    return found


def test_the_wheel_for_cuda_12_has_every_module(tmp_path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=PACKAGE / "cuda12", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("ort_ep_cuda12-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = PACKAGE / "src"
    modules = {p.relative_to(source).as_posix() for p in source.rglob("*") if p.suffix in (".py", ".typed")}
    assert packed == modules
