"""Files that the documentation names exist, and the page of the architecture answers where to change what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages/ort-core/src/ort_core"
EXAMPLES = ROOT / "examples"
ARCHITECTURE = ROOT / "docs/architecture.md"
PAGES = (ROOT / "CONTRIBUTING.md", ARCHITECTURE, *sorted((ROOT / "docs").glob("*/*.md")))
FOLDERS = (CORE, ROOT, EXAMPLES, EXAMPLES / "ort-ep-template", *ROOT.glob("packages/*"))
NAMED = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.py)?)`")
BEGINNINGS = tuple(f"{each.name}/" for each in CORE.iterdir() if each.is_dir())
ANSWERS = 22


def missing(text: str) -> list[str]:
    """Return the paths in a text, of ort_core, the repository or its examples, that name nothing."""
    return [
        name
        for name in NAMED.findall(text)
        if (name.startswith(BEGINNINGS) or name.split("/")[0] in ("packages", "docs", "tests", "tools"))
        and not any((folder / name).exists() for folder in FOLDERS)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8")), "moved, or renamed"


def test_a_file_that_is_gone_is_found() -> None:
    assert missing("`cpu/no_such_file.py`, `cpu/nowhere/`, `cpu/provider.py`, `tests/`") == [
        "cpu/no_such_file.py", "cpu/nowhere/",
    ]  # fmt: skip


def test_the_architecture_answers_where_to_change_what() -> None:
    _, _, section = ARCHITECTURE.read_text(encoding="utf-8").partition("## Where do I change …")
    answers = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert len(answers) == ANSWERS
    unnamed = [answer for answer in answers if not re.search(r"`[\w./]+(?:\.py|/)`", answer)]
    assert not unnamed, "each answer names a file or a folder"
    gone = []
    for answer in answers:
        named = re.findall(r"`([\w./-]+(?:\.py|/))`", answer)
        folders = [CORE, ROOT, *(ROOT / name for name in named if (ROOT / name).is_dir())]  # one may be named first
        gone += [name for name in named if not any((folder / name).exists() for folder in folders)]
    assert not gone, "moved, or renamed"


def test_the_parts_of_the_cpu_engine_are_those_of_its_table() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(cpu/\w+)` \|", text, re.MULTILINE))
    assert told == {f"cpu/{each.parent.name}" for each in (CORE / "cpu").glob("*/__init__.py")}
