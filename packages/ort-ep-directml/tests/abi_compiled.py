"""The declarations of abi_declarations.hpp as a C++ compiler sees them: layouts of structs, objects to call."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DECLARATIONS = Path(__file__).with_name("abi_declarations.hpp")
_STRUCT = re.compile(r"^(struct|union) (\w+) \{ (.+) \};$", re.MULTILINE)
_INTERFACE = re.compile(r"^struct (\w+)(?: : (\w+))? \{(?:\};|\n(.*?)\n\};)$", re.MULTILINE | re.DOTALL)
_METHOD = re.compile(r"^  virtual (\w+) (\w+)\((.*)\) = 0;$", re.MULTILINE)
_SUPPORT = """
#include <cstdio>
#include <cstring>
static const char* last; static int count; static uint64_t noted[8];
template <class T> void note(T value) { noted[count] = 0; std::memcpy(&noted[count++], &value, sizeof value); }
template <class T> T answer() {
  T found;
  for (size_t i = 0; i < sizeof found; i++) ((BYTE*)&found)[i] = (BYTE)(i + 1);
  return found;
}
template <> HRESULT answer<HRESULT>() { return 7; }
template <> bool answer<bool>() { return true; }
template <> void answer<void>() {}
extern "C" const char* last_method() { return last; }
extern "C" int last_count() { return count; }
extern "C" uint64_t last_argument(int index) { return noted[index]; }
"""


@dataclass(frozen=True)
class DeclaredMethod:
    """A method as the declarations state it."""

    name: str
    result: str
    arguments: tuple[str, ...]


def compiler() -> str | None:
    """Return a C++ compiler, if there is one; on Windows none of these: theirs is another convention than Windows'."""
    return None if sys.platform == "win32" else shutil.which("g++") or shutil.which("clang++")


def declared_structs() -> dict[str, tuple[str, ...]]:
    """Return the fields of each struct."""
    found = {}
    for _, name, body in _STRUCT.findall(DECLARATIONS.read_text(encoding="utf-8")):
        fields = re.sub(r"union \{ (.*) \}", r"\1", body).split(";")
        found[name] = tuple(re.search(r"(\w+)(?:\[\d+\])?$", field.strip())[1] for field in fields if field.strip())
    return found


def declared_interfaces() -> dict[str, tuple[DeclaredMethod, ...]]:
    """Return the methods of each interface, those of its bases first."""
    found: dict[str, tuple[DeclaredMethod, ...]] = {}
    text = DECLARATIONS.read_text(encoding="utf-8").split("- interfaces\n")[1]
    for name, base, body in _INTERFACE.findall(text):
        own = tuple(
            DeclaredMethod(method, result, tuple(arg.strip().rsplit(None, 1)[0] for arg in args.split(",") if arg))
            for result, method, args in _METHOD.findall(body)
        )
        found[name] = (*found.get(base, ()), *own)
    return found


def layouts(folder: Path) -> dict[str, dict[str, int]]:
    """Return ``sizeof`` (by the name ``""``) and ``offsetof`` each field of each struct, as compiled."""
    lines = []
    for name, fields in declared_structs().items():
        lines.append(f'std::printf("{name}  %zu\\n", sizeof({name}));')
        lines += [f'std::printf("{name} {field} %zu\\n", offsetof({name}, {field}));' for field in fields]
    source = folder / "layouts.cpp"
    source.write_text(f'#include "{DECLARATIONS.as_posix()}"\n{_SUPPORT}int main() {{ {" ".join(lines)} }}')
    program = folder / "layouts"
    _compile(source, program)
    found: dict[str, dict[str, int]] = {}
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        name, field, number = line.split(" ")
        found.setdefault(name, {})[field] = int(number)
    return found


def objects(folder: Path) -> ctypes.CDLL:
    """Return a library with an object of each interface that notes how it was called.

    ``object_of_NAME()`` returns one; ``last_method``, ``last_count`` and ``last_argument`` tell of the last call.
    """
    parts = [f'#include "{DECLARATIONS.as_posix()}"\n{_SUPPORT}']
    for name, methods in declared_interfaces().items():
        body = "\n".join(_implemented(name, method) for method in methods)
        parts.append(f"struct {name}_object : {name} {{\n{body}\n}};\n")
        parts.append(f'static {name}_object the_{name}; extern "C" void* object_of_{name}() {{ return &the_{name}; }}')
    parts.append(
        'extern "C" void* after_this(char* self, LUID* out, UINT a) {'
        " out->LowPart = a; out->HighPart = *self; return out; }"
    )
    source = folder / "objects.cpp"
    source.write_text("\n".join(parts))
    library = folder / "objects.so"
    _compile(source, library, "-shared", "-fPIC")
    loaded = ctypes.CDLL(str(library))
    loaded.last_method.restype = ctypes.c_char_p
    loaded.last_argument.restype = ctypes.c_uint64
    return loaded


def _implemented(interface: str, method: DeclaredMethod) -> str:
    arguments = ", ".join(f"{kind} a{index}" for index, kind in enumerate(method.arguments))
    notes = "".join(f" note(a{index});" for index in range(len(method.arguments)))
    return (
        f"  {method.result} {method.name}({arguments}) override {{"
        f' last = "{interface}.{method.name}"; count = 0;{notes} return answer<{method.result}>(); }}'
    )


def _compile(source: Path, target: Path, *flags: str) -> None:
    subprocess.run([compiler(), "-std=c++17", *flags, str(source), "-o", str(target)], check=True)
