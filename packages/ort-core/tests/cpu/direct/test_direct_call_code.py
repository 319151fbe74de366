"""The code of direct calls: for every system, without calls into libraries; refused where the layout is another."""

from __future__ import annotations

import sys

import pytest

from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.direct import python_layout
from ort_core.cpu.direct.call_code import call_text
from ort_core.cpu.direct.call_layout import ArrayLayout
from ort_core.cpu.direct.python_layout import PythonLayout, find_python_layout

TRIPLES = [
    "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-macosx14.0", "x86_64-apple-darwin22",
    "x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc",
]  # fmt: skip


@pytest.fixture
def layout() -> PythonLayout:
    found = find_python_layout()
    assert isinstance(found, PythonLayout)
    return found


@pytest.mark.parametrize("is_locked", [True, False])
@pytest.mark.parametrize("triple", TRIPLES)
def test_direct_calls_compile_for_every_system_without_calls_into_libraries(
    layout: PythonLayout, triple: str, is_locked: bool
) -> None:
    if sys.platform == "win32" and triple.startswith("aarch64-pc-windows"):
        pytest.skip("llvmlite's LLVM for Windows is built with assertions, and one of them ends the process")
    text = assembly(call_text(layout.arrays, is_locked=is_locked), target_of(triple, "", ""))
    assert "ort_direct_call" in text
    assert "ort_direct_step" in text
    assert "chkstk" not in text
    assert "__aarch64_cas" not in text


@pytest.mark.parametrize("field", ArrayLayout.__slots__)
def test_an_array_whose_field_lies_elsewhere_is_noticed(layout: PythonLayout, field: str) -> None:
    fields = {name: getattr(layout.arrays, name) for name in ArrayLayout.__slots__}
    moved = ArrayLayout(**{**fields, field: fields[field] - 8})
    assert python_layout._differing_field(layout.arrays) is None
    assert python_layout._differing_field(moved) is not None


def test_code_that_comes_with_the_package_has_the_header_of_this_interpreter(layout: PythonLayout) -> None:
    header = python_layout.LOCKED_HEADER if layout.is_locked else python_layout.UNLOCKED_HEADER
    assert python_layout.array_layout(header) == layout.arrays
