"""``ort cache``: the folder of compiled artefacts and optimized models."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ort_core.cli.parameters import JsonFlag

_NO_FOLDER = "none: this user has no home directory, and ORT_CACHE_DIR names no folder"

app = typer.Typer(no_args_is_help=True, help="Look into and clear the cache of compiled artefacts.")


@app.command("path")
def show_path(json: JsonFlag = False) -> None:
    """Show the folder of the cache (ORT_CACHE_DIR changes it)."""
    from ort_core.cache.folder import cache_directory
    from ort_core.cli.console import print_json

    folder = cache_directory()
    if json:
        print_json({"path": folder})
    else:
        typer.echo(_NO_FOLDER if folder is None else folder)


@app.command("size")
def show_size(json: JsonFlag = False) -> None:
    """Show how much the cache holds."""
    from ort_core.cli.console import bytes_text, print_json

    facts = cache_facts()
    if json:
        print_json(facts)
        return
    limit = bytes_text(facts["max_nbytes"])
    typer.echo(f"{bytes_text(facts['nbytes'])} of at most {limit} in {facts['entries']} entries ({facts['path']})")


@app.command("list")
def show_entries(json: JsonFlag = False) -> None:
    """List what is kept for each model, least recently used first; --json lists each entry."""
    from ort_core.cache.about import About
    from ort_core.cache.store import ArtefactCache, CacheEntry
    from ort_core.cli.console import bytes_text, output_console, print_json
    from ort_core.cli.tables import new_table, show_table

    found = [(entry, About.from_text(entry.about)) for entry in ArtefactCache().entries()]
    found.sort(key=lambda each: each[0].used_at)
    if json:
        print_json(
            [{"kind": e.kind, "name": e.name, "nbytes": e.nbytes, "used": _when(e.used_at), "model": about.model,
              "level": about.level} for e, about in found]
        )  # fmt: skip
        return
    if not found:
        typer.echo("the cache is empty")
        return
    groups: dict[tuple[str, str], list[CacheEntry]] = {}
    for entry, about in found:
        groups.setdefault((about.model, about.level), []).append(entry)
    table = new_table(("model", "level", "kinds", "entries", "size", "last used"), numbers=("entries", "size"))
    for (model, level), entries in sorted(groups.items(), key=lambda each: each[1][-1].used_at):
        kinds = ", ".join(sorted({entry.kind for entry in entries}))
        size = bytes_text(sum(entry.nbytes for entry in entries))
        table.add_row(model or "(no model)", level, kinds, str(len(entries)), size, _minute(entries[-1].used_at))
    show_table(output_console(), table)


@app.command("clear")
def clear(
    keep: Annotated[
        float | None, typer.Option("--keep", metavar="MIB", min=0, help="Keep the most recently used up to this size.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Remove the entries of the cache."""
    from ort_core.cache.store import ArtefactCache
    from ort_core.cli.console import print_json

    cache = ArtefactCache()
    removed = cache.clear() if keep is None else cache.trim(int(keep * 2**20))
    if json:
        print_json({"removed": removed, **cache_facts()})
    else:
        typer.echo(f"removed {removed} entries from {cache.folder}")


def cache_facts() -> dict[str, Any]:  # Any: plain data
    """Return where the cache is and how much it holds."""
    from ort_core.cache.store import ArtefactCache

    cache = ArtefactCache()
    entries = list(cache.entries())
    total = sum(entry.nbytes for entry in entries)
    is_writable = cache.folder is not None and (cache.max_nbytes <= 0 or _is_writable(Path(cache.folder)))
    return {"path": cache.folder, "entries": len(entries), "nbytes": total, "max_nbytes": cache.max_nbytes,
            "is_writable": is_writable}  # fmt: skip


def _is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, or it in the first one around it that exists."""
    existing = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    return existing.is_dir() and os.access(existing, os.W_OK)


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def _minute(seconds: float) -> str:
    """Return a time for a table: of this machine's clock, and without seconds, so that paths have room."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
