"""Write the lists of a door's names from its imports for type checkers, so that each name is written once by hand.

    python tools/door_names.py            writes the lists of every module that has lazy names
    python tools/door_names.py --check    names the modules whose lists are not those of their imports, and exits with 1

A door is a module with an ``if TYPE_CHECKING:`` block of imports and a call of ``lazy_names``: ``__all__`` and the
homes of the names stand between them. Names that a door defines itself, such as ``__version__``, stay in ``__all__``.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120


def doors() -> list[Path]:
    """Return the modules whose names are imported when they are asked for."""
    sources = sorted((ROOT / "packages").glob("*/src/**/*.py"))
    marks = ("\n__getattr__, __dir__ = lazy_names(", "\nif TYPE_CHECKING:", "\n__all__ = [")
    return [path for path in sources if all(mark in path.read_text("utf-8") for mark in marks)]


def written(source: str) -> str:
    """Return the source of a door with ``__all__`` and the homes of its names as its imports say."""
    tree = ast.parse(source)
    homes: dict[str, list[str]] = {}
    for module, found in _homes(tree):
        homes.setdefault(module, []).extend(found)
    listed = next(each for each in tree.body if _assigns(each, "__all__"))
    lazy = next(each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Tuple))
    names = {name for found in homes.values() for name in found} | _own_names(tree)
    lines = source.splitlines(keepends=True)
    head, between = lines[: listed.lineno - 1], lines[_end(listed) : lazy.lineno - 1]
    opening, rest = lines[lazy.lineno - 1], lines[_end(lazy) :]
    return "".join([*head, _all_of(names), *between, _lazy_of(opening, homes), *rest])


def _end(statement: ast.stmt) -> int:
    assert statement.end_lineno is not None, "parsed statements have places"
    return statement.end_lineno


def _homes(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield each module that the block for type checkers imports from, with the names."""
    block = next(each for each in tree.body if isinstance(each, ast.If) and _is_for_checkers(each.test))
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
        yield statement.module or "", [alias.asname or alias.name for alias in statement.names]


def _is_for_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(each, ast.Name) and each.id == name for each in targets)


def _own_names(tree: ast.Module) -> set[str]:
    """Return the public names that a door defines, or imports at once under their own names (``X as X``)."""
    found = {"__version__"} if any(_assigns(each, "__version__") for each in tree.body) else set[str]()
    for each in tree.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            found |= {each.targets[0].id} if not each.targets[0].id.startswith("_") else set()
        if isinstance(each, ast.ImportFrom):
            found |= {alias.name for alias in each.names if alias.asname == alias.name}
    return found


def _all_of(names: Iterable[str]) -> str:
    texts = [f'"{name}"' for name in sorted(names, key=_rank)]
    whole = f"__all__ = [{', '.join(texts)}]\n"
    return whole if len(whole) <= WIDTH + 1 else f"__all__ = [\n{_filled(texts, 4)}]  # fmt: skip\n"


def _rank(name: str) -> tuple[int, str]:
    """Sort constants before classes before functions, as the linter wants lists of names."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def _lazy_of(opening: str, homes: dict[str, list[str]]) -> str:
    return f"{opening}    __name__,\n    {{\n{''.join(_home(*each) for each in homes.items())}    }},\n)  # fmt: skip\n"


def _home(module: str, names: list[str]) -> str:
    texts = [f'"{name}"' for name in names]
    whole = f'        "{module}": ({", ".join(texts)}{"," if len(texts) == 1 else ""}),\n'
    return whole if len(whole) <= WIDTH + 1 else f'        "{module}": (\n{_filled(texts, 12)}        ),\n'


def _filled(texts: list[str], indent: int) -> str:
    lines = textwrap.wrap(", ".join(texts) + ",", WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def main(arguments: list[str]) -> int:
    """Write or check all doors, and return the exit code."""
    stale = [path for path in doors() if written(path.read_text("utf-8")) != path.read_text("utf-8")]
    for path in stale:
        sys.stdout.write(f"{path.relative_to(ROOT).as_posix()}\n")
        if "--check" not in arguments:
            path.write_text(written(path.read_text("utf-8")), encoding="utf-8", newline="\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
