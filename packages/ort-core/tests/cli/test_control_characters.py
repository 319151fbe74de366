"""Names in a model are anybody's: a terminal obeys none of their control characters."""

from __future__ import annotations

import io

import onnx
import pytest
from onnx import TensorProto, helper
from rich.table import Table

from ort_core.cli.control_characters import shown
from ort_core.cli.plain_console import PlainConsole

EVIL = "x\x1b]0;title\x9b2Jy"
CALM = "x\\x1b]0;title\\x9b2Jy"


@pytest.fixture
def evil(tmp_path) -> str:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [EVIL]) for name in (EVIL, "y")]
    nodes = [helper.make_node("Neg", [EVIL], ["a"], EVIL), helper.make_node("Det", ["a"], ["y"], f"det {EVIL}")]
    graph = helper.make_graph(nodes[:1] + [helper.make_node("Abs", ["a"], ["y"])], EVIL, ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, doc_string=EVIL)
    helper.set_model_props(model, {EVIL: EVIL})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return str(path)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("inspect",), 0), (("inspect", "--steps"), 0), (("explain", "--nodes"), 0), (("run",), 0), (("profile",), 0),
        (("bench", "-n", "1"), 0), (("compare", "--provider-b", "reference"), 0),
        (("run", "--shape", "nope=1"), 2), (("run", "--dim", f"{EVIL}=0"), (0, 1, 2)),
    ],
)  # fmt: skip
def test_commands_show_them_by_their_numbers(ort, evil, command, code):
    result = ort(command[0], evil, *command[1:])
    assert result.code in (code if isinstance(code, tuple) else (code,)), result.err
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(result.out + result.err)


def test_they_stand_in_what_is_printed(ort, evil):
    assert CALM in ort("inspect", evil).out


def test_colors_stay_what_a_terminal_obeys():
    file = io.StringIO()
    table = Table("name")
    table.add_row(EVIL, style="bold")
    console = PlainConsole(file=file, force_terminal=True, color_system="standard", width=80, highlight=False)
    console.print(table)
    console.print(EVIL, style="bold red")
    assert file.getvalue().count(CALM) == 2
    assert "\x1b[1;31m" in file.getvalue()
    assert "\x1b]0" not in file.getvalue()


def test_ends_of_lines_and_tabs_are_no_such_characters():
    assert shown("a\tb\nc\u00e4\u2028") == "a\tb\nc\u00e4\u2028"
