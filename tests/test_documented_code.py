"""Code in the README and the documentation that is marked ``<!-- runnable -->`` runs, and prints what the page shows.

The marked blocks of one page run in order, as one program, from the repository's root. A ``text`` block directly behind
a marked one is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = r"<!-- runnable -->\n\n?```python\n(?P<code>.*?)^```\n"
PRINTED = r"\n```text\n(?P<shown>.*?)^```\n"
BLOCK = re.compile(f"{CODE}(?:{PRINTED})?", re.DOTALL | re.MULTILINE)
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if BLOCK.search(page.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_runs_and_prints_what_is_shown_on(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder with the examples, as a clone has them: guides write files, and a clone stays as it was."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    scope: dict[str, object] = {"__name__": "documented"}
    for block in BLOCK.finditer(text):
        line = text[: block.start("code")].count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            exec(compile("\n" * line + block["code"], page, "exec"), scope)  # newlines: errors name the page's line
        if block["shown"] is not None:
            assert printed.getvalue().rstrip() == block["shown"].rstrip(), f"{page}, line {line + 1}"


def test_every_mark_is_followed_by_a_block_of_python() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- runnable -->\n") == len(BLOCK.findall(text)), page


def test_the_guides_to_additions_have_code_that_runs() -> None:
    guides = {f"docs/howto/add-{name}.md" for name in ("an-operator", "a-kernel", "a-pass")}
    guides |= {"docs/howto/custom_operators.md", "docs/howto/write_a_pass.md"}
    assert {"README.md", "docs/howto/write_an_execution_provider.md", *guides} <= set(PAGES)
