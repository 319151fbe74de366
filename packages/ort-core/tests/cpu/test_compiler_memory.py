"""LLVM's pages are given back behind a compilation, weights wait for that, and no run compiles what a load could."""

from __future__ import annotations

import sys

import pytest

from ort_core.cpu.codegen import compiler_memory, jit

ADD = "define i64 @{name}(i64 %a) {{\n  %b = add i64 %a, {number}\n  ret i64 %b\n}}\n"
SMAPS = """\
7f0000000000-7f0000003000 r--p 00000000 fe:00 12                 /lib/libmade-1.so
Rss:                  8 kB
Anonymous:            0 kB
Swap:                 0 kB
VmFlags: rd mr mw me
7f0000003000-7f0000009000 r-xp 00003000 fe:00 12                 /lib/libmade-1.so
Rss:                 16 kB
Anonymous:            4 kB
Swap:                 0 kB
7f0000009000-7f000000a000 rw-p 00009000 fe:00 12                 /lib/libmade-1.so
Rss:                  4 kB
Anonymous:            0 kB
Swap:                 0 kB
7f000000a000-7f000000b000 rw-p 00000000 00:00 0
Rss:                  4 kB
Anonymous:            0 kB
Swap:                 0 kB
7f000000b000-7f000000c000 r-xp 00000000 fe:00 13                 /lib/with a space/libother.so
Rss:                  4 kB
Anonymous:            0 kB
Swap:                 0 kB
7f000000c000-7f000000d000 r--p 00001000 fe:00 13                 /lib/with a space/libother.so
Rss:                  0 kB
Anonymous:            0 kB
Swap:                 4 kB
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="how pages of a library are given back is known for Linux")


@linux
def test_only_ranges_as_they_are_in_their_file_are_told() -> None:
    from ort_core.cpu.codegen.library_pages_linux import LibraryRange, unchanged

    assert list(unchanged(SMAPS.splitlines(keepends=True))) == [
        LibraryRange(0x7F0000000000, 0x7F0000003000, "/lib/libmade-1.so", 8192),
        LibraryRange(0x7F000000B000, 0x7F000000C000, "/lib/with a space/libother.so", 4096),
    ]


@linux
def test_pages_of_the_compiler_go_and_it_compiles_again() -> None:
    from ort_core.cpu.codegen.library_pages_linux import release_library

    first = jit.compile_module(ADD.format(name="first", number=1))
    assert compiler_memory.has_compiled()
    assert release_library("libllvmlite") > 10 << 20, "what compiling a module has read of 150 MB of code"
    assert release_library("libllvmlite") < 10 << 20
    second = jit.compile_module(ADD.format(name="second", number=2))
    assert first.address("first")
    assert second.address("second")


@linux
def test_library_that_is_not_loaded_gives_nothing() -> None:
    from ort_core.cpu.codegen.library_pages_linux import release_library

    assert release_library("libnothing-of-that-name") == 0


LOAD = """
import json, sys
import numpy
import ort_core
from ort_core.cpu.codegen import jit
session = ort_core.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
compiled, every = [], jit.compile_module
jit.compile_module = lambda *given, **named: compiled.append(given[0]) or every(*given, **named)
x = numpy.ones((3, 64), numpy.float32)
outputs = [session.run(None, {"x": x})[0] for _ in range(4)]
print(json.dumps([len(compiled), session._loaded.direct.refusal is None, float(outputs[-1][0, 0])]))
"""
