"""Parts of vectors are read and written to the byte: by the assembly for every level of x86-64, and by running it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ort_core.cpu.codegen
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, module_text, vector_type
from ort_core.cpu.codegen.llvm_ir.part_access import load_first, store_first, store_masked
from ort_core.cpu.codegen.machine_code.jit import assembly, compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target

LEVELS = {
    "x86-64-v2": target_of("x86_64-unknown-linux-gnu", "x86-64-v2", "+sse4.2"),
    "x86-64-v3": target_of("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma"),
    "x86-64-v4": target_of("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx2,+fma,+avx512f"),
    "emeraldrapids": target_of("x86_64-unknown-linux-gnu", "emeraldrapids", "+avx2,+fma,+avx512f"),
}
HOSTS: dict[str, Callable[[], Target]] = {
    "host": host_target,
    "without AVX-512": lambda: restricted_target("avx512", "amx"),
    "without AVX": lambda: restricted_target("avx", "fma", "f16c", "amx", "vaes", "vpclmulqdq"),
}
NBYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8}

_CUT = "%r = trunc {w} %b to {n}"
_LIMITED = (
    "%a = call {w} @llvm.smax.{s}({w} %v, {w} splat ({e} %d))",
    "%b = call {w} @llvm.smin.{s}({w} %a, {w} splat ({e} %d))",
)
PRODUCERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "i8": ("i8", "i32", ("%r = trunc {w} %v to {n}",)),
    "i8 saturated": ("i8", "i32", (_LIMITED[0].replace("%d", "-128"), _LIMITED[1].replace("%d", "127"), _CUT)),
    "u8 saturated": ("i8", "i32", (_LIMITED[0].replace("%d", "0"), _LIMITED[1].replace("%d", "255"), _CUT)),
    "u8 saturated above": ("i8", "i32", ("%b = call {w} @llvm.umin.{s}({w} %v, {w} splat (i32 255))", _CUT)),
    "i4 in pairs": ("i8", "i32", ("%a = shl {w} %v, splat (i32 4)", "%b = or {w} %v, %a", _CUT)),
    "i16": ("i16", "i32", ("%r = trunc {w} %v to {n}",)),
    "i16 saturated": ("i16", "i32", (_LIMITED[0].replace("%d", "-32768"), _LIMITED[1].replace("%d", "32767"), _CUT)),
    "bf16": ("i16", "i32", ("%a = add {w} %v, splat (i32 32767)", "%b = lshr {w} %a, splat (i32 16)", _CUT)),
    "i8 of a comparison": ("i8", "i32", ("%m = icmp sgt {w} %v, zeroinitializer", "%r = zext {m} %m to {n}")),
    "i8 of i64": ("i8", "i64", ("%r = trunc {w} %v to {n}",)),
    "i16 of i64": ("i16", "i64", ("%r = trunc {w} %v to {n}",)),
    "i32 of i64": ("i32", "i64", ("%r = trunc {w} %v to {n}",)),
    "i32": ("i32", "i32", ("%r = add {w} %v, splat (i32 1)",)),
    "i64": ("i64", "i64", ("%r = add {w} %v, splat (i64 1)",)),
    "float": ("float", "i32", ("%r = bitcast {w} %v to {n}",)),
    "float of double": ("float", "double", ("%r = fptrunc {w} %v to {n}",)),
    "half": ("half", "float", ("%r = fptrunc {w} %v to {n}",)),
}
"""Stored element type, that of a vector ``%v`` which it comes from, and how."""

_STORED = {
    "movb": 1, "movw": 2, "movl": 4, "movq": 8, "movd": 4, "movss": 4, "movsd": 8,
    "movlps": 8, "movhps": 8, "movlpd": 8, "movhpd": 8, "pextrb": 1, "pextrw": 2,
    "pextrd": 4, "pextrq": 8, "extractps": 4, "extractf128": 16, "extracti128": 16, "extractf32x4": 16,
    "extracti32x4": 16, "extractf64x4": 32, "extracti64x4": 32,
}  # fmt: skip
"""Bytes that an instruction stores, by its name without the v of the newer encoding."""

_NARROWED = {"wb": 2, "db": 4, "dw": 2, "qb": 8, "qw": 4, "qd": 2}  # how much shorter what they store is
_REGISTER = {"xmm": 16, "ymm": 32, "zmm": 64}


@pytest.mark.parametrize("is_vectorized", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_a_part_of_a_vector_is_stored_to_the_byte(level: str, is_vectorized: bool) -> None:
    target = LEVELS[level]
    cases = {
        f"f{number}_{width}_{count}": (producer, width, count)
        for number, producer in enumerate(PRODUCERS)
        for width in {4, target.lanes, 16}
        for count in range(1, width)
        if producer != "half" or target.lanes > 4  # else a function of a library converts
    }
    text = module_text([_storing(name, *case) for name, case in cases.items()])
    listed = _functions(assembly(text, target, is_vectorized=is_vectorized))
    for name, (producer, width, count) in cases.items():
        nbytes = count * NBYTES[PRODUCERS[producer][0]]
        pieces = [_stored(line, PRODUCERS[producer][0]) for line in listed[name]]
        stored = sorted({byte for piece in pieces if piece is not None for byte in piece})
        assert None in pieces or stored == list(range(nbytes)), (producer, width, count, listed[name])


@pytest.mark.parametrize("is_vectorized", [False, True])
@pytest.mark.parametrize("host", HOSTS)
def test_a_part_of_a_vector_is_what_is_stored(host: str, is_vectorized: bool) -> None:
    target = HOSTS[host]()
    numbers = np.random.default_rng(0).integers(-(2**31), 2**31, 16, np.int32)
    width = target.lanes
    for producer in ("i8", "i8 saturated", "u8 saturated", "i16", "bf16", "i32", "float"):
        functions = [_storing(f"f{count}", producer, width, count) for count in range(1, width)]
        module = compile_module(module_text(functions), target, is_vectorized=is_vectorized)
        expected = _expected(producer, numbers[:width])
        for count in range(1, width):
            out = np.full(expected.nbytes + 16, 99, np.uint8)
            _call(module.address(f"f{count}"), numbers, out)
            stored = count * expected.itemsize
            np.testing.assert_array_equal(out[:stored], expected.view(np.uint8)[:stored], (producer, count))
            assert (out[stored:] == 99).all(), (producer, count)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, ml_dtypes.bfloat16, np.int32, np.float32, np.int64])
def test_what_lies_behind_a_part_of_a_vector_reads_as_0(host: str, dtype: type[np.generic]) -> None:
    target = HOSTS[host]()
    element = {"uint8": "i8", "int16": "i16", "float16": "half", "bfloat16": "i16", "int32": "i32", "float32": "float",
               "int64": "i64"}[np.dtype(dtype).name]  # fmt: skip
    width = target.lanes
    given = np.arange(1, width + 1).astype(dtype)
    module = compile_module(module_text([_loading(f"f{n}", element, width, n) for n in range(1, width)]), target)
    for count in range(1, width):
        out = np.full(width, 99, dtype)
        _call(module.address(f"f{count}"), given, out)
        expected = np.where(np.arange(width) < count, given, np.zeros(width, dtype))
        np.testing.assert_array_equal(out.view(np.uint8), expected.view(np.uint8), str(count))


def test_a_masked_store_of_what_a_truncation_may_make_is_refused() -> None:
    mask = IRValue("<16 x i1>", "zeroinitializer")
    for type_ in ("<16 x i8>", "<16 x i32>", "<16 x half>"):
        with pytest.raises(ValueError, match="float32 or float64"):
            store_masked(Emitter("f", []), IRValue(type_, "zeroinitializer"), IRValue("ptr", "null"), 1, mask)


def test_one_file_alone_uses_masked_access() -> None:
    folder = Path(ort_core.cpu.codegen.__path__[0])
    users = {path.name for path in folder.parent.rglob("*.py") if "llvm.masked" in path.read_text("utf-8")}
    assert users == {"part_access.py"}


def _storing(name: str, producer: str, width: int, count: int) -> Emitter:
    element, source, lines = PRODUCERS[producer]
    emitter = Emitter(name, [("ptr", "x"), ("ptr", "y")])
    wide, narrow = vector_type(width, source), vector_type(width, element)
    emitter.line(f"%v = load {wide}, ptr %x, align 1")
    suffix = f"v{width}{source}"
    for line in lines:
        emitter.line(line.format(w=wide, n=narrow, s=suffix, e=source, m=vector_type(width, "i1")))
        if called := re.search(r"@(llvm\.\w+)", line):
            emitter.declarations[f"declare {wide} @{called[1]}.{suffix}({wide}, {wide})"] = None
    store_first(emitter, IRValue(narrow, "%r"), count, emitter.parameter("y"), NBYTES[element])
    return emitter


def _loading(name: str, element: str, width: int, count: int) -> Emitter:
    emitter = Emitter(name, [("ptr", "x"), ("ptr", "y")])
    value = load_first(emitter, vector_type(width, element), count, emitter.parameter("x"), NBYTES[element])
    emitter.store(value, emitter.parameter("y"), 1)
    return emitter


def _expected(producer: str, numbers: np.ndarray) -> np.ndarray:
    if producer == "i8 saturated":
        return np.clip(numbers, -128, 127).astype(np.int8)
    if producer == "u8 saturated":
        return np.clip(numbers, 0, 255).astype(np.uint8)
    if producer == "bf16":
        return ((numbers.view(np.uint32) + np.uint32(32767)) >> 16).astype(np.uint16)
    if producer == "i32":
        return numbers + np.int32(1)
    return numbers.astype({"i8": np.int8, "i16": np.int16, "float": np.int32}[producer])


def _call(address: int, x: np.ndarray, y: np.ndarray) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(x.ctypes.data, y.ctypes.data)


def _functions(text: str) -> dict[str, list[str]]:
    """Return the instructions of each function of an assembly."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if head := re.match(r"(f\w+):", line):
            found[head[1]] = current = []
        elif line.startswith("\t") and not line.startswith("\t."):
            current.append(line.split("#")[0].strip().replace("\t", " "))
    return found


def _stored(instruction: str, element: str) -> range | None:
    """Return the bytes behind the second argument that an instruction stores; None if a mask of float32 says which.

    Raises:
        AssertionError: it stores there in a way that this test does not know.
    """
    place = re.search(r" (\d*)\(%rsi\)( \{%k\d\})?$", instruction)
    if place is None:
        assert "(%rsi" not in instruction, instruction
        return range(0)
    name, start = instruction.split()[0], int(place[1] or 0)
    if place[2] or "maskmov" in name:
        assert element == "float", instruction
        assert name in ("vmovups", "vmovaps", "vmovdqu32", "vmovdqa32", "vmaskmovps"), instruction
        return None
    nbytes = _stored_nbytes(name.removeprefix("v"), instruction)
    return range(start, start + nbytes)


def _stored_nbytes(name: str, instruction: str) -> int:
    register = re.search(r"%([xyz]mm)", instruction)
    if register and (narrowed := re.fullmatch(r"pmovu?s?(\w\w)", name)):
        return _REGISTER[register[1]] // _NARROWED[narrowed[1]]
    if register and name == "cvtps2ph":
        return _REGISTER[register[1]] // 2
    if register and re.fullmatch(r"mov(dq)?[au](ps|pd|8|16|32|64)?", name):
        return _REGISTER[register[1]]
    if name.startswith("set"):
        return 1
    assert name in _STORED, instruction
    return _STORED[name]
