"""Lists of operators for reduced builds, symbolics for torch's export, and what is left out for a reason."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from unittest import mock

import pytest
from onnxruntime_tools import theirs

from ort_tools import pytorch_export_contrib_ops
from ort_tools.absent_modules import reason_of
from ort_tools.reduced_build_config_parser import parse_config

LIST = """
# made by hand
!globally_allowed_types;float,int64_t
ai.onnx;12,13;Add,Cast{"inputs": {"0": ["float", "int32_t"]}, "outputs": {"0": ["float"]}}, Concat

ai.onnx;13;OneHot{"custom": [["float", "int64_t", "int64_t"]]},Add
com.microsoft;1;Gelu
"""


def test_lists_of_operators_are_read_as_onnxruntime_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "operators.config"
    path.write_text(LIST, encoding="utf-8")
    found, filters = parse_config(str(path))
    assert filters is None
    both = {"Add", "Cast", "Concat"}
    assert found == {"ai.onnx": {12: both, 13: both | {"OneHot"}}, "com.microsoft": {1: {"Gelu"}}}
    one_opset = LIST.replace("12,13", "13")  # opsets of one line share a set there, and get each other's operators
    path.write_text(one_opset, encoding="utf-8")
    assert parse_config(str(path))[0] == theirs("reduced_build_config_parser").parse_config(str(path))[0]


def test_a_list_without_entries_requires_nothing_or_everything(tmp_path: Path) -> None:
    path = tmp_path / "operators.config"
    path.write_text("# nothing\n", encoding="utf-8")
    assert parse_config(str(path)) == ({}, None)
    path.write_text("!no_ops_specified_means_all_ops_are_required\n", encoding="utf-8")
    assert parse_config(str(path)) == (None, None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ai.onnx;12", "line 1: expected DOMAIN"),
        ("ai.onnx;twelve;Add", "expected DOMAIN"),
        ("ai.onnx;12;Add,,Sub", "name of an operator at ',Sub'"),
        ('ai.onnx;12;Cast{"inputs": }', "types of Cast are no JSON"),
        ("ai.onnx;12;Add Sub", "expected a comma behind Add"),
    ],
)
def test_a_line_that_is_no_entry_is_told(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "operators.config"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        parse_config(str(path))


class _Graph:
    """Keeps what symbolics write, as torch's graphs would."""

    def op(self, name: str, *inputs: object, **attributes: object) -> mock.Mock:
        """Return a value that knows it."""
        made = mock.Mock(spec=["setType", "written"], written=(name, inputs, attributes))
        made.setType.return_value = made
        return made


def test_symbolics_are_registered_and_taken_back() -> None:
    onnx = types.ModuleType("torch.onnx")
    registered: dict[tuple[str, int], object] = {}
    vars(onnx)["register_custom_op_symbolic"] = lambda name, symbolic, opset: registered.update(
        {(name, opset): symbolic}
    )
    vars(onnx)["unregister_custom_op_symbolic"] = lambda name, opset: registered.pop((name, opset))
    helper = types.ModuleType("torch.onnx.symbolic_helper")
    vars(helper)["_maybe_get_const"] = lambda value, kind: value
    fakes = {"torch": types.ModuleType("torch"), "torch.onnx": onnx, "torch.onnx.symbolic_helper": helper}
    value = mock.Mock()
    with mock.patch.dict(sys.modules, fakes):
        pytorch_export_contrib_ops.register()
        assert {opset for name, opset in registered if name == "aten::gelu"} == {1, *range(9, 21)}
        made = registered["aten::grid_sampler", 1](_Graph(), value, value, 2, 1, True)  # type: ignore[operator]  # above
        assert made.written[0] == "com.microsoft::GridSample"
        assert made.written[2] == {"mode_s": "bicubic", "padding_mode_s": "border", "align_corners_i": 1}
        assert registered["aten::gelu", 9](_Graph(), value, "none").written[0] == "com.microsoft::Gelu"  # type: ignore[operator]  # above
        pytorch_export_contrib_ops.unregister()
    assert registered == {}


def test_each_module_of_onnxruntime_is_here_or_left_out_for_a_reason() -> None:
    (folder,) = importlib.import_module("onnxruntime.tools").__path__
    for path in Path(folder).glob("*"):
        name = path.stem
        if name.startswith("_") or importlib.util.find_spec(f"ort_tools.{name}") is not None:
            continue
        assert reason_of(name), name
