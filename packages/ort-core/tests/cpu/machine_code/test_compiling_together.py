"""Modules are compiled side by side: the same bytes as one after the other, and errors reach whoever asked."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
from llvmlite.binding import ffi

from ort_core.cpu.codegen.machine_code import jit
from ort_core.cpu.codegen.machine_code.code_cache import ModuleSource, compiled_together
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target

COUNT = 24


def text(number: int) -> str:
    """Return a function with a loop: the sum of the squares below ``n``, and a number."""
    return f"""
define i64 @f{number}(i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i64 [ {number}, %entry ], [ %more, %loop ]
  %square = mul i64 %i, %i
  %more = add i64 %sum, %square
  %next = add i64 %i, 1
  %ends = icmp sge i64 %next, %n
  br i1 %ends, label %end, label %loop
end:
  ret i64 %more
}}
"""


@pytest.fixture(params=[1, 2, 16])
def num_threads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("is_vectorized", [False, True])
def test_modules_compiled_together_have_the_bytes_of_those_compiled_alone(
    is_vectorized: bool, num_threads: int
) -> None:
    texts = [jit.ModuleText(text(number), is_vectorized) for number in range(COUNT)]
    together = [module.object_code for module in jit.compile_modules(texts, num_threads=num_threads)]
    assert together == [jit.compile_module(each.text, is_vectorized=is_vectorized).object_code for each in texts]
    assert len(set(together)) == COUNT


def test_every_function_computes_what_its_text_says(num_threads: int) -> None:
    modules = jit.compile_modules((jit.ModuleText(text(number)) for number in range(COUNT)), num_threads=num_threads)
    for number, module in enumerate(modules):
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(module.address(f"f{number}"))
        assert function(10) == number + sum(i * i for i in range(10))


@pytest.mark.parametrize("at", [0, COUNT // 2, COUNT - 1])
def test_text_that_is_no_llvm_ir_is_an_error(at: int, num_threads: int) -> None:
    texts = [jit.ModuleText("no text" if number == at else text(number)) for number in range(COUNT)]
    with pytest.raises(RuntimeError, match="parsing error"):
        jit.compile_modules(texts, num_threads=num_threads)
    assert jit.compile_module(text(3)).address("f3")


def test_error_of_whoever_writes_a_text_ends_the_compilation(num_threads: int) -> None:
    def texts() -> Iterator[jit.ModuleText]:
        yield jit.ModuleText(text(0))
        yield jit.ModuleText(text(1))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        jit.compile_modules(texts(), num_threads=num_threads)


def test_no_text_compiles_to_nothing() -> None:
    assert jit.compile_modules([]) == []


def test_interpreter_that_ends_compiles_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(jit.ThreadPoolExecutor, "submit", refuse)
    modules = jit.compile_modules((jit.ModuleText(text(number)) for number in range(3)), num_threads=2)
    assert [bool(module.address(f"f{number}")) for number, module in enumerate(modules)] == [True] * 3


def test_llvmlite_without_the_functions_that_it_wraps_compiles_under_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = jit.compile_module(text(5)).object_code
    held: list[bool] = []

    class Wrapper:
        def __init__(self, name: str) -> None:
            self._wrapped = getattr(ffi.lib, name)

        def __call__(self, *arguments: object) -> object:
            held.append(True)
            return self._wrapped(*arguments)

    for name in ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory"):
        monkeypatch.setitem(ffi.lib._fntab, name, Wrapper(name))
    assert jit.compile_module(text(5)).object_code == expected
    assert held == [True, True]


def test_sources_of_one_name_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    written: list[int] = []

    def write() -> str:
        written.append(1)
        return text(7)

    name = b"a name that only this test gives"
    first, second = compiled_together([ModuleSource(name, write)] * 2, host_target())
    assert first is second
    (third,) = compiled_together([ModuleSource(name, write)], host_target())
    assert third is first
    assert len(written) == 1


def test_threads_that_compile_end_with_the_compilation() -> None:
    before = threading.active_count()
    jit.compile_modules((jit.ModuleText(text(number)) for number in range(4)), num_threads=2)
    assert threading.active_count() <= before
