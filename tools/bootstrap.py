"""Prepare .venv from a bare Python 3.11+ with pip, then run the demo or the tests; the second time it only runs.

    python tools/bootstrap.py demo      install what the demo needs and run it
    python tools/bootstrap.py test      install what the tests need and run them; further arguments go to pytest
    python tools/bootstrap.py develop   install everything that the nox sessions need, and run nothing

Only the standard library is used. What is installed stands in pyproject.toml; nothing outside the clone is changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = SCRIPTS / ("python.exe" if os.name == "nt" else "python")
VENDOR = "ort-ep-"  # packages whose SDK is of no use without their hardware: installed without it
ALONE = "test-alone"  # a group that is installed without what it requires
GROUPS = {"demo": [], "test": ["dev"], "develop": ["dev", "docs", "train"]}


def main(arguments: list[str]) -> int:
    """Run one of the commands and return its exit status."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever has an older Python gets this sentence
        print(f"ort-core needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")
        return 2
    if not arguments or arguments[0] not in GROUPS:
        print(__doc__)
        return 2
    command, rest = arguments[0], arguments[1:]
    status = install(command)
    if status or command == "develop":
        return status
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV), "PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}"}
    environment.pop("PYTHONHOME", None)
    if command == "demo":
        program = [str(PYTHON), "examples/digits/demo.py", *rest]
    else:
        program = [str(PYTHON), "-m", "nox", "--no-venv", "-s", "tests", "--", *rest]
    return subprocess.run(program, cwd=ROOT, env=environment, check=False).returncode


def install(command: str) -> int:
    """Make .venv and install the packages in place with the requirements of ``command``, unless that is done."""
    packages = [ROOT / "packages/ort-core", ROOT / "conformance"]
    if command != "demo":  # vendors' packages bring SDKs: openvino is a wheel of 59 MB, 180 MB installed
        others = (path.parent for path in ROOT.glob("packages/ort-*/pyproject.toml"))
        packages[1:1] = sorted(package for package in others if package.name != "ort-core")
    required = requirements(GROUPS[command])
    stamp = VENV / f"installed-for-{command}"
    digest = fingerprint([ROOT / "pyproject.toml", *(package / "pyproject.toml" for package in packages)])
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == digest:
        return 0
    if not PYTHON.exists():
        # Without pip inside: the pip that runs this installs into it, so that ensurepip may be missing (Debian).
        print(f"creating {VENV}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], check=True)
    others = f", and {len(required)} requirements of {command!r}" if required else ""
    print(f"installing ort-core and what it needs{others}", flush=True)
    own = [package for package in packages if not package.name.startswith(VENDOR)]
    editable = [argument for package in own for argument in ("-e", str(package))]
    pip = [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--quiet", "--disable-pip-version-check"]
    # pip itself as well, for whoever activates .venv and follows a message that says `pip install …`
    status = subprocess.run([*pip, "pip", *editable, *required], cwd=ROOT, check=False).returncode
    if status:
        print(f"pip could not install the requirements (exit status {status}); its messages are above")
        return status
    alone = [argument for package in packages if package not in own for argument in ("-e", str(package))]
    alone += requirements([ALONE] if command != "demo" else [])
    if alone and subprocess.run([*pip, "--no-deps", *alone], cwd=ROOT, check=False).returncode:
        print(f"pip could not install {', '.join(alone)} without what they require; its messages are above")
        return 1
    stamp.write_text(digest)
    return 0


def requirements(groups: list[str]) -> list[str]:
    """Return the requirements of dependency groups of the root pyproject.toml, included groups resolved."""
    import tomllib  # here, so that an older Python reaches the message that says so

    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    found: list[str] = []
    for group in groups:
        for item in known[group]:
            found += [item] if isinstance(item, str) else requirements([item["include-group"]])
    return sorted(set(found))


def fingerprint(files: list[Path]) -> str:
    """Return a digest of the files that say what to install, and of the Python that it is installed for."""
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
