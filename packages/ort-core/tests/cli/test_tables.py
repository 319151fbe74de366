"""Tables in consoles of every width: whole numbers and names, no blanks at ends of lines, lists where it is narrow."""

import io

import pytest
from rich.console import Console

from ort_core.cli.console import rate_text
from ort_core.cli.tables import new_table, shared_widths, show_facts, show_table

SENTENCE = "it lacks the driver of this device: install that of the vendor and start the program again"


def shown(width, columns, *rows, numbers=()):
    table = new_table(columns, numbers=numbers)
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    show_table(Console(file=file, width=width), table)
    return file.getvalue()


def test_a_table_with_room_has_a_line_for_each_row_without_blanks_at_its_end():
    text = shown(80, ("node", "time"), ("a", "1.5 ms"), ("long_name", "20 us"), numbers=("time",))
    lines = text.split("\n")
    assert [line.split() for line in lines[:1] + lines[2:4]] == [["node", "time"], ["a", "1.5", "ms"],
                                                                  ["long_name", "20", "us"]]  # fmt: skip
    assert lines == [line.rstrip() for line in lines]
    assert len(lines[2]) == len(lines[3]), "numbers end at one column"


def test_sentences_wrap_while_names_and_numbers_stay_whole_where_a_table_is_too_wide():
    text = shown(70, ("provider", "nodes", "reason"), ("CPUExecutionProvider", "12,345", SENTENCE), numbers=("nodes",))
    lines = text.split("\n")
    assert max(map(len, lines)) <= 70
    assert sum("CPUExecutionProvider" in line and "12,345" in line for line in lines) == 1
    assert " ".join(" ".join(line[32:].split()) for line in lines[2:]).strip() == SENTENCE


@pytest.mark.parametrize("width", [60, 40, 25])
def test_rows_are_listed_where_no_table_has_room(width):
    columns = ("runs", "p50", "p90", "p99", "min", "mean", "runs/s", "items")
    cells = ("193092", "7.08 us", "8.38 us", "10.7 us", "4.71 us", "7.32 us", "136,600", "1,092,800")
    text = shown(width, columns, cells, numbers=columns)
    assert [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line] == list(zip(columns, cells))


def test_cells_without_text_are_left_out_of_a_list():
    assert shown(20, ("provider", "why"), ("ReferenceExecutionProvider", "")) == "provider  ReferenceE\n" + (
        " " * 10 + "xecutionPr\n" + " " * 10 + "ovider\n\n"
    )


def test_widths_go_to_small_wants_first():
    assert shared_widths((10, 20, 200), (10, 10, 10), 60) == [10, 20, 30]
    assert shared_widths((50, 60), (10, 10), 60) == [30, 30]
    assert shared_widths((5, 6), (5, 6), 20) == [5, 6]


def test_facts_in_a_file_have_no_blanks_at_the_ends_of_lines():
    file = io.StringIO()
    show_facts(Console(file=file, width=60), [("model", "m.onnx"), ("parameters", "12")])
    assert file.getvalue() == "model       m.onnx\nparameters  12\n"


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.0123456, "0.0123"), (12.34, "12.3"), (1861.2, "1,861"), (106612.3, "106,600"), (1e7, "10,000,000")],
)  # fmt: skip
def test_rates_have_no_exponent(rate, text):
    assert rate_text(rate) == text
