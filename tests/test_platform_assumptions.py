"""docs/platform_assumptions.md names every file of the core that relies on insides of Python, numpy or the system."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages" / "ort-core" / "src" / "ort_core"
PAGE = ROOT / "docs" / "platform_assumptions.md"
INSIDES = re.compile(
    r"ctypes\.(pythonapi|PYFUNCTYPE|PyDLL|CDLL|memmove|string_at)|\.from_address\(|_multiarray_umath|_initializing"
    r"|\"/(proc|sys)/|__array_interface__ =|MADV_|register_at_fork|gc\.(disable|freeze)\(|@pthread_create|CreateThread"
)


def test_every_file_that_relies_on_insides_is_on_the_page():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8")))
    relying = {
        path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py") if INSIDES.search(path.read_text("utf-8"))
    }
    assert len(relying) > 10, "the search finds what it is to find"
    assert not relying - named, "tell on docs/platform_assumptions.md what happens where this does not hold"
    assert not {name for name in named if not (CORE / name).is_file()}, "the page names files that are not there"
