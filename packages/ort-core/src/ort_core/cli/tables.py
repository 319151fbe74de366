"""Tables as wide as the console: names and numbers stay whole, sentences wrap; too narrow a one lists rows instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Column, Table

_WHOLE_WORD = 24  # characters of a word that are not broken: names of most providers and passes have fewer
_GAP = 3  # characters between two columns


def show_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, value)
    _print(console, grid)


def new_table(columns: Sequence[str], *, numbers: Sequence[str] = (), title: str | None = None) -> Table:
    """Return an empty table; the columns named in ``numbers`` are aligned to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", show_edge=False)
    for name in columns:
        is_number = name in numbers
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def show_table(console: Console, table: Table) -> None:
    """Print a table and an empty line; where its columns have no room side by side, one list for each row."""
    natural = [_widest(_texts(column)) for column in table.columns]
    least = [wide if column.no_wrap else _longest_word(column) for wide, column in zip(natural, table.columns)]
    room = console.width - _GAP * (len(natural) - 1) - 2
    if sum(least) > room:
        _show_rows(console, table)
        return
    if sum(natural) > room:
        for column, width in zip(table.columns, shared_widths(natural, least, room)):
            column.width = width
    _print(console, table)
    console.print()


def shared_widths(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return a width for each column within ``room``: its least, then what is left, small wants first.

    So that one long column wraps, rather than every column a little.
    """
    widths, spare = list(least), room - sum(least)
    wants = sorted((wide - small, place) for place, (wide, small) in enumerate(zip(natural, least)))
    for rank, (want, place) in enumerate(wants):
        given = min(want, spare // (len(wants) - rank))
        widths[place] += given
        spare -= given
    return widths


def _show_rows(console: Console, table: Table) -> None:
    if table.title:
        console.print(table.title, style="bold")
    for row in zip(*(column.cells for column in table.columns)):
        facts = [(str(column.header), str(cell)) for column, cell in zip(table.columns, row)]
        show_facts(console, [(name, text) for name, text in facts if text])
        console.print()


def _print(console: Console, what: RenderableType) -> None:
    """Print, without blanks at the ends of lines where no terminal shows them."""
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as captured:
        console.print(what, soft_wrap=False)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _texts(column: Column) -> list[str]:
    return [str(column.header), *(str(cell) for cell in column.cells)]


def _widest(texts: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for text in texts for line in text.split("\n"))


def _longest_word(column: Column) -> int:
    words = [word for text in _texts(column) for word in text.split()]
    return min(_widest(words), _WHOLE_WORD)
