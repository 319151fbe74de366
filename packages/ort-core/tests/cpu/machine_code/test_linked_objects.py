"""Object files that are linked here compute what LLVM's loader makes of them; what is not understood is left to it."""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ort_core.cpu.codegen.machine_code import object_loading
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_loader import load_by_llvm
from ort_core.cpu.codegen.machine_code.object_loading import load_object
from ort_core.plugin import Rejection

if sys.platform != "linux" or platform.machine() != "x86_64":
    pytest.skip("objects are linked here on Linux for x86-64 only", allow_module_level=True)

from ort_core.cpu.codegen.machine_code import linked_objects_linux
from ort_core.cpu.codegen.machine_code.linked_objects_linux import link

TABLES = """
@squares = internal constant [5 x i64] [i64 0, i64 1, i64 4, i64 9, i64 16]

define i64 @double(i64 %x) { %y = mul i64 %x, 2
  ret i64 %y }
define i64 @negate(i64 %x) { %y = sub i64 0, %x
  ret i64 %y }
define ptr @address() { ret ptr @negate }

define i64 @chosen(i64 %which, i64 %x) noinline optnone {
  %first = icmp eq i64 %which, 0
  %f = select i1 %first, ptr @double, ptr @negate
  %y = call i64 %f(i64 %x)
  ret i64 %y
}

define i64 @switched(i64 %which, i64 %x) noinline {
  switch i64 %which, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                                    i64 3, label %d  i64 4, label %e ]
a: %va = call i64 @double(i64 %x)
  ret i64 %va
b: %vb = udiv i64 %x, 3
  ret i64 %vb
c: %vc = xor i64 %x, 12345
  ret i64 %vc
d: %vd = mul i64 %x, %x
  ret i64 %vd
e: %ve = shl i64 %x, 7
  ret i64 %ve
other: ret i64 -1
}

define i64 @square(i64 %x) noinline {
  %p = getelementptr [5 x i64], ptr @squares, i64 0, i64 %x
  %y = load i64, ptr %p
  ret i64 %y
}

define i64 @called(i64 %x) noinline optnone { %y = call i64 @square(i64 %x)
  ret i64 %y }
"""
COPIES = """
declare ptr @memcpy(ptr, ptr, i64)
define void @copy(ptr %to, ptr %from, i64 %nbytes) {
  %ignored = call ptr @memcpy(ptr %to, ptr %from, i64 %nbytes)
  ret void
}
"""
VARIABLE = """
@count = global i64 3
define i64 @next() {
  %x = load i64, ptr @count
  %y = add i64 %x, 1
  store i64 %y, ptr @count
  ret i64 %y
}
"""
STRANGER = """
declare i64 @ort_no_such_function(i64)
define i64 @call(i64 %x) { %y = call i64 @ort_no_such_function(i64 %x)
  ret i64 %y }
"""


ABSOLUTE, COMMON = 0xFFF1, 0xFFF2  # "sections" of symbols that have none


def mapped_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE


def object_code(text: str) -> bytes:
    return compile_module(text).object_code


def answers(module: CompiledModule) -> list[int]:
    """Call the functions of ``TABLES``."""

    def call(name: str, *arguments: int) -> int:
        return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))(module.address(name))(*arguments)

    by_table = [call("chosen", which, 21) for which in (0, 1)]
    squares = [call(name, x) for name in ("square", "called") for x in range(5)]
    switched = [call("switched", which, 21) for which in range(6)]
    return [*by_table, *squares, *switched, call("address") - module.address("negate")]


def test_functions_constants_and_addresses_are_what_llvms_loader_makes_of_them() -> None:
    code = object_code(TABLES)
    assert not isinstance(link(code), Rejection)
    expected = [42, -21, *[0, 1, 4, 9, 16] * 2, 42, 7, 21 ^ 12345, 441, 21 << 7, -1, 0]
    assert answers(load_object(code)) == answers(load_by_llvm(code)) == expected


def test_functions_of_the_c_library_are_found() -> None:
    code = object_code(COPIES)
    assert not isinstance(link(code), Rejection)
    data, copied = ctypes.create_string_buffer(b"thirteen bytes"), ctypes.create_string_buffer(15)
    pointer = ctypes.c_void_p
    module = load_object(code)
    ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_size_t)(module.address("copy"))(copied, data, 14)
    assert copied.value == b"thirteen bytes"


def test_memory_is_given_back_with_its_module_and_kept_to_the_end_of_the_process() -> None:
    def mapped(address: int) -> bool:
        with Path("/proc/self/maps").open(encoding="utf-8") as file:
            ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in file if " r-xp " in line]
        return any(start <= address < end for start, end in ranges)

    module = load_object(object_code(TABLES))
    address = module.address("double")
    assert mapped(address)
    del module
    gc.collect()
    assert not mapped(address)
    program = f"""
import atexit, ctypes, threading, time
from ort_core.cpu.codegen.machine_code.object_loading import load_object
module = load_object({object_code(TABLES)!r})
call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(module.address("double"))
class AtTheEnd:
    def __del__(self):
        assert call(4) == 8
        print("called")
module.owner_of_the_last = AtTheEnd()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "called\n"), done.stderr


def test_functions_that_are_not_there_are_refused() -> None:
    module = load_object(object_code(TABLES))
    with pytest.raises(KeyError, match="absent"):
        module.address("absent")


def test_variables_are_left_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    code = object_code(VARIABLE)
    assert link(code) == Rejection("it has variables")
    following = ctypes.CFUNCTYPE(ctypes.c_int64)
    module = load_object(code)
    assert [following(module.address("next"))() for _ in range(2)] == [4, 5]


def test_names_that_nobody_has_are_refused() -> None:
    machine = pytest.importorskip("llvmlite.binding")
    from ort_core.cpu.codegen.machine_code import llvm_targets

    module = machine.parse_assembly(STRANGER)
    found = link(llvm_targets.target_machine(llvm_targets.host_target()).emit_object(module))
    assert found == Rejection("this process has no function ort_no_such_function")


def changed_symbols(code: bytes, section: int) -> bytes:
    """Return an object file whose symbols of sections are said to lie in another."""
    header = linked_objects_linux._HEADER.unpack_from(code)
    sections = linked_objects_linux._sections(code, header[6], header[12])
    (table,) = (each for each in sections if each.kind == linked_objects_linux._SYMTAB)
    symbol, changed = linked_objects_linux._SYMBOL, bytearray(code)
    for at in range(table.offset, table.offset + table.nbytes, symbol.size):
        name, kind, visibility, own, *rest = symbol.unpack_from(code, at)
        symbol.pack_into(changed, at, name, kind, visibility, section if 0 < own < ABSOLUTE else own, *rest)
    return bytes(changed)


@pytest.mark.parametrize("section", [ABSOLUTE, COMMON, 1])
def test_an_object_that_is_refused_half_way_leaves_no_memory_behind(section: int) -> None:
    code = changed_symbols(object_code(TABLES), section)
    assert isinstance(object_loading._linked(code), Rejection)
    before = mapped_nbytes()
    for _ in range(200):
        object_loading._linked(code)
    assert mapped_nbytes() - before < 100 * mmap.PAGESIZE


@pytest.mark.parametrize("damage", ["another machine", "another format", "cut", "empty"])
def test_bytes_that_are_no_object_for_this_machine_are_refused(damage: str) -> None:
    code = object_code(TABLES)
    bytes_of = {
        "another machine": code[:18] + struct.pack("<H", 183) + code[20:], "another format": b"MZ" + code[2:],
        "cut": code[: len(code) // 2], "empty": b"",
    }  # fmt: skip
    assert isinstance(object_loading._linked(bytes_of[damage]), Rejection)
