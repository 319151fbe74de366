"""C++ text: what an emulated CUDA kernel does wrong without a wrong result, noted with its line.

The compiler puts a call in front of each operation that C++ leaves undefined (``-fsanitize``); these are the functions
that it calls. They note the first one and go on. Beyond that shared memory holds a pattern when a block begins, since a
device's is not cleared, and threads run in the order that is asked for: what needs no order gives equal results.
"""

from __future__ import annotations

import sys

HAS_CHECKS = sys.platform == "linux"  # by sections of ELF, with the sanitizer's calls of gcc and clang

CHECK_FLAGS = (
    "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,bounds,alignment,null,bool,float-cast-overflow",
    "-fsanitize-recover=all",
)
_TWO = {
    "add_overflow": "a sum overflows", "sub_overflow": "a difference overflows", "mul_overflow": "a product overflows",
    "divrem_overflow": "a division by zero, or one that overflows", "shift_out_of_bounds": "a shift beyond the type",
}  # fmt: skip
_ONE = {
    "negate_overflow": "a negation overflows", "out_of_bounds": "an index beyond an array",
    "type_mismatch_v1": "an address that is null or not aligned",
    "load_invalid_value": "a bool that is neither 0 nor 1",
}  # fmt: skip


def _handlers() -> str:
    lines = []
    for name, words in (*_TWO.items(), *_ONE.items()):
        more = "void*, void*" if name in _TWO else "void*"
        told = " std::fputs(emu_found, stderr);" if name == "type_mismatch_v1" else ""  # the access may end the process
        note = f'{{ emu_note("{words}", place);{told} }}'
        lines.append(f"EMU_HANDLER void __ubsan_handle_{name}(EmuPlace* place, {more}) {note}")
    note = '{ emu_note("a number that its integer type does not hold", nullptr); }'
    lines.append(f"EMU_HANDLER void __ubsan_handle_float_cast_overflow(void*, void*) {note}")
    return "\n".join(lines)


CHECKS = rf"""
#include <cstdio>
struct EmuPlace {{ const char* file; unsigned line, column; }};
static char emu_found[256];
static bool emu_is_reversed = false;
static unsigned char emu_pattern = 0xff;
static void emu_note(const char* what, const EmuPlace* place) {{
  if (emu_found[0]) return;
  if (place && place->file)
    std::snprintf(emu_found, sizeof emu_found, "%s at %s:%u:%u", what, place->file, place->line, place->column);
  else std::snprintf(emu_found, sizeof emu_found, "%s", what);
}}
#define EMU_HANDLER extern "C" __attribute__((visibility("hidden")))
{_handlers()}
#define __shared__ static __attribute__((section("emu_shared")))
extern char __start_emu_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emu_shared[] __attribute__((weak, visibility("hidden")));
static void emu_begin_block() {{
  char* first = __start_emu_shared; char* last = __stop_emu_shared;
  if (first) std::memset(first, emu_pattern, (size_t)(last - first));
}}
extern "C" void emu_set(int is_reversed, int pattern) {{
  emu_is_reversed = is_reversed != 0; emu_pattern = (unsigned char)pattern; emu_found[0] = 0;
}}
extern "C" const char* emu_what_was_found() {{ return emu_found; }}
"""
"""Defines ``emu_note``, and ``emu_set`` and ``emu_what_was_found`` for whoever loads the library."""

NO_CHECKS = r"""
static const bool emu_is_reversed = false;
static void emu_note(const char*, const void*) {}
#define __shared__ static
static void emu_begin_block() {}
"""
"""What stands in their place: nothing is noted."""
