"""``python -m ort_core.dropin program.py [arguments]`` or ``-m module``: runs an unchanged program on ort-core."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from ort_core.dropin.finder import install

USAGE = "usage: python -m ort_core.dropin [-m module | program.py] [arguments ...]"


def main(arguments: list[str]) -> None:
    """Run a program with the drop-in in place; its exit code and its exceptions are its own."""
    is_module = arguments[:1] == ["-m"]
    rest = arguments[1:] if is_module else arguments
    if not rest or (not is_module and rest[0].startswith("-")):
        sys.exit(USAGE)
    install()
    sys.argv = list(rest)
    if is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    program = Path(rest[0])
    if not program.exists():
        sys.exit(f"{program} does not exist. {USAGE}")
    sys.path[0] = str(program.resolve().parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
