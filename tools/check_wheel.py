"""Check a built wheel: it holds what it must, and it imports with nothing of the repository on the path."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIRED = ("ort_core/__init__.py", "ort_core/py.typed", "entry_points.txt", "licenses/LICENSE", ".bin")


def main(folder: str) -> int:
    """Check the only wheel in ``folder`` and return 0 when it is sound."""
    (wheel,) = Path(folder).glob("ort_core-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    missing = [required for required in REQUIRED if not any(name.endswith(required) for name in names)]
    if missing:
        print(f"{wheel.name} lacks {', '.join(missing)}")
        return 1
    strangers = [name for name in names if not name.startswith("ort_core")]
    if strangers:
        print(f"{wheel.name} holds files outside ort_core: {', '.join(strangers[:5])}")
        return 1
    with tempfile.TemporaryDirectory() as elsewhere:
        program = f"import sys; sys.path.insert(0, {str(wheel)!r}); import ort_core; print(ort_core.__version__)"
        found = subprocess.run([sys.executable, "-I", "-c", program], cwd=elsewhere, capture_output=True, text=True)
    version = wheel.name.split("-")[1]
    if found.stdout.strip() != version:
        print(f"{wheel.name} imports as version {found.stdout.strip()!r}: {found.stderr.strip()}")
        return 1
    print(f"{wheel.name}: {len(names)} files, imports as {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
