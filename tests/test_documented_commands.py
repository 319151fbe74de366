"""The commands that README and documentation show exist: subcommands of `ort` with their options, sessions of nox.

A command counts where it stands as inline code, or as a line of a block. Packages that are not installed are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ort_core.cli.app import build_app
from ort_core.cli.plugin_commands import PACKAGES_OF_COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted(ROOT.glob("packages/*/README.md"))
COMMAND = re.compile(r"`(ort [a-z][^`\n]*)`|^(?:\$ | {4})?(ort [a-z][^\n]*)$", re.MULTILINE)
SESSION = re.compile(r"nox (?:--no-venv )?-s ((?:[a-z_]+(?:-[\d.]+)? ?)+)")


def options_by_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield each subcommand with its options. Any: typer's own classes, whose home differs by version."""
    if not hasattr(command, "list_commands"):
        yield path, {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        return
    context = command.make_context("ort", [], resilient_parsing=True)
    for name in command.list_commands(context):
        yield from options_by_command(command.get_command(context, name), (*path, name))


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, ...], set[str]]:
    return dict(options_by_command(get_command(build_app())))


def faults(line: str, known: dict[tuple[str, ...], set[str]]) -> list[str]:
    """Return what a shown command names that does not exist."""
    words = re.split(r"\s+#", line)[0].split()[1:]
    name = next((tuple(words[:k]) for k in (2, 1) if tuple(words[:k]) in known), None)
    if name is None:
        is_group = len(words) == 1 and any(path[0] == words[0] for path in known)
        is_absent = words[0] in PACKAGES_OF_COMMANDS and not any(path[0] == words[0] for path in known)
        return [] if is_group or is_absent else [f"no such command: {line}"]
    options = [word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
    return [f"no option {option}: {line}" for option in options if option not in {*known[name], "--help", "-h"}]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_shown_commands_have_the_options_that_they_are_shown_with(page: Path, known: dict) -> None:
    lines = [inline or line for inline, line in COMMAND.findall(page.read_text(encoding="utf-8"))]
    assert [fault for line in lines for fault in faults(line, known)] == []


def test_a_wrong_option_and_a_wrong_command_would_be_seen(known: dict) -> None:
    assert faults("ort optimize m.onnx -o seen.onnx", known) == ["no option -o: ort optimize m.onnx -o seen.onnx"]
    assert faults("ort optimizes m.onnx", known) == ["no such command: ort optimizes m.onnx"]
    assert faults("ort run m.onnx --dim batch=2  # two rows", known) == []


def test_files_that_sessions_of_nox_run_exist() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {text.strip("/") for text in texts if re.fullmatch(r"[\w/-]*/[\w-]+\.py|test_\w+\.py", text)}
    folders = [ROOT, ROOT / "conformance", *(ROOT / "packages").iterdir()]
    places = [place / inner for place in folders for inner in ("", "tests", "tests/fuzz", "tests/random_graphs")]
    assert len(named) > 20
    assert ".py" not in texts, "write file names out: one that a loop puts together is not checked"
    assert {name for name in named if not any((place / name).is_file() for place in places)} == set()


def test_shown_sessions_of_nox_exist() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    shown = {
        (page.name, name.split("-")[0])
        for page in PAGES
        for names in SESSION.findall(page.read_text(encoding="utf-8"))
        for name in names.split()
    }
    assert len(shown) > 20
    assert {each for each in shown if each[1] not in sessions} == set()
