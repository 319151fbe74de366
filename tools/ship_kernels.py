"""Write the machine code that a wheel of ort-core carries: modules that every machine needs, for each level and system.

    python tools/ship_kernels.py                                 into the source tree, where a wheel takes them from
    python tools/ship_kernels.py FOLDER --only x86_64-unknown-linux-gnu

The same sources and the same llvmlite give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ort_core.cpu.codegen.machine_code.jit import object_code
from ort_core.cpu.codegen.machine_code.levels import levels
from ort_core.cpu.codegen.machine_code.shipped_code import FOLDER, shipped_file, shipped_name
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.microkernel import tiles_text
from ort_core.cpu.direct.call_code import call_text
from ort_core.cpu.direct.python_layout import array_layout
from ort_core.cpu.rounds.round_code import rounds_text
from ort_core.cpu.threads.pool_code import pool_text
from ort_core.cpu.threads.primitives import primitives_for

MOST_NBYTES = 5_000_000


def common_modules(level: Target) -> Iterator[tuple[str, bool]]:
    """Give the text of each module that every machine of a level needs, and whether few passes do to compile it."""
    yield pool_text(level.triple, primitives_for(level.triple)), False
    yield call_text(array_layout()), False
    yield rounds_text(), False
    yield tiles_text(level), True


def main(
    folder: Annotated[Path, typer.Argument(help="Where to; what it holds of an earlier time goes.")] = Path(FOLDER),
    only: Annotated[str, typer.Option(help="The one triple to write for.")] = "",
) -> None:
    """Compile and write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.bin"):
        old.unlink()
    for level in levels():
        if only in ("", level.triple):
            for text, is_vectorized in common_modules(level):
                name = shipped_name(text, level, is_vectorized=is_vectorized)
                code = object_code(text, level, is_vectorized=is_vectorized)
                (folder / name).write_bytes(shipped_file(name, code))
    nbytes = sum(file.stat().st_size for file in folder.glob("*.bin"))
    count = sum(1 for _ in folder.glob("*.bin"))
    typer.echo(f"{count} modules, {nbytes / 1e6:.2f} MB in {folder}")
    if nbytes > MOST_NBYTES:
        raise SystemExit(f"they are larger than the {MOST_NBYTES / 1e6:.0f} MB that a wheel may grow by")


if __name__ == "__main__":
    typer.run(main)
