"""The executor of shaders without DirectML: small shaders written here do what Direct3D says of them."""

from __future__ import annotations

import gc
import math
import struct

import llvmlite.binding as llvm
import numpy as np
import pytest
from directml_rig import fetch
from directml_rig.dxil import program
from directml_rig.dxil.module import ResourceKind
from directml_rig.dxil.program import BoundView, Shader
from directml_rig.dxil.views import View
from directml_rig.errors import UnsupportedShaderError

FLOATS, INTEGERS = View(ResourceKind.TYPED, format=41), View(ResourceKind.TYPED, format=43)
HALVES, BYTES = View(ResourceKind.TYPED, format=54), View(ResourceKind.TYPED, format=62)
FLOAT, INTEGER = 9, 4  # component types of DXIL
OUTSIDE = 0x7FFFFFFF

MODULE = """
%dx.types.Handle = type {{ ptr }}
%dx.types.ResRet.f32 = type {{ float, float, float, float, i32 }}
%dx.types.ResRet.i32 = type {{ i32, i32, i32, i32, i32 }}
%dx.types.two = type {{ i32, i32 }}
%dx.types.Dimensions = type {{ i32, i32, i32, i32 }}
@shared = internal addrspace(3) global [64 x i32] undef, align 4
define void @main() {{
{body}
}}
declare %dx.types.Handle @dx.op.createHandle(i32, i8, i32, i32, i1)
declare i32 @dx.op.threadId.i32(i32, i32)
declare i32 @dx.op.flattenedThreadIdInGroup.i32(i32)
declare i32 @dx.op.groupId.i32(i32, i32)
declare %dx.types.ResRet.f32 @dx.op.bufferLoad.f32(i32, %dx.types.Handle, i32, i32)
declare %dx.types.ResRet.i32 @dx.op.bufferLoad.i32(i32, %dx.types.Handle, i32, i32)
declare void @dx.op.bufferStore.f32(i32, %dx.types.Handle, i32, i32, float, float, float, float, i8)
declare void @dx.op.bufferStore.i32(i32, %dx.types.Handle, i32, i32, i32, i32, i32, i32, i8)
declare i32 @dx.op.atomicBinOp.i32(i32, %dx.types.Handle, i32, i32, i32, i32, i32)
declare %dx.types.Dimensions @dx.op.getDimensions(i32, %dx.types.Handle, i32)
declare void @dx.op.barrier(i32, i32)
{declared}
!dx.resources = !{{!0}}
!dx.entryPoints = !{{!9}}
!0 = !{{null, !1, null, null}}
!1 = !{{!2, !3}}
!2 = !{{i32 0, ptr undef, !"", i32 0, i32 0, i32 1, i32 {kind}, i1 false, i1 false, i1 false, !4}}
!3 = !{{i32 1, ptr undef, !"", i32 0, i32 1, i32 1, i32 {kind}, i1 false, i1 false, i1 false, !4}}
!4 = !{{i32 {tag}, i32 {value}}}
!5 = !{{i32 {x}, i32 {y}, i32 1}}
!6 = !{{i32 4, !5}}
!9 = !{{ptr @main, !"main", null, !0, !6}}
"""
HANDLES = """  %source = call %dx.types.Handle @dx.op.createHandle(i32 57, i8 1, i32 0, i32 0, i1 false)
  %target = call %dx.types.Handle @dx.op.createHandle(i32 57, i8 1, i32 1, i32 1, i1 false)
  %n = call i32 @dx.op.threadId.i32(i32 93, i32 0)
"""
LOAD = """  %row = call %dx.types.ResRet.{t} @dx.op.bufferLoad.{t}(i32 68, %dx.types.Handle %source, i32 %n, i32 undef)
  %x = extractvalue %dx.types.ResRet.{t} %row, 0
"""
STORE = (
    "  call void @dx.op.bufferStore.{t}(i32 69, %dx.types.Handle %target, i32 %n, i32 undef, "
    "{v}, {v}, {v}, {v}, i8 15)\n  ret void"
)


def container_of(bitcode: bytes) -> bytes:
    program = struct.pack("<II4sIII", 0x50060, 0, b"DXIL", 0x100, 16, len(bitcode)) + bitcode
    part = struct.pack("<4sI", b"DXIL", len(program)) + program
    return struct.pack("<4s16sHHIII", b"DXBC", bytes(16), 1, 0, 36 + len(part), 1, 36) + part


@pytest.fixture
def shader(tmp_path, monkeypatch):
    """Make a shader of the lines of its function; what is compiled is kept in a folder of the test."""
    monkeypatch.setattr(fetch, "folder", lambda: tmp_path)

    def make(body: str, declared: str = "", group: tuple[int, int] = (4, 1), element: int = FLOAT, stride: int = 0):
        kind, tag, value = (12, 1, stride) if stride else (10, 0, element)
        text = MODULE.format(body=body, declared=declared, kind=kind, tag=tag, value=value, x=group[0], y=group[1])
        return Shader(container_of(llvm.parse_assembly(text, llvm.create_context()).as_bitcode()))

    return make


def run(made: Shader, source: np.ndarray, target: np.ndarray, views: tuple[View, View], groups: int = 1) -> np.ndarray:
    bound = [BoundView(array.ctypes.data, array.size) for array in (source, target)]
    made.run(views, bound, (groups, 1, 1))
    return target


def unary(opcode: int, kind: str = "f32") -> tuple[str, str]:
    """The body and declaration of a shader that computes one function of each element."""
    word = {"f32": "float", "i32": "i32"}[kind]
    call = f"  %y = call {word} @dx.op.unary.{kind}(i32 {opcode}, {word} %x)\n"
    body = HANDLES + LOAD.format(t=kind) + call + STORE.format(t=kind, v=f"{word} %y")
    return body, f"declare {word} @dx.op.unary.{kind}(i32, {word})"


@pytest.mark.parametrize(
    ("opcode", "formula"),
    [
        (6, np.abs), (7, lambda x: np.clip(x, 0, 1)), (12, np.cos), (13, np.sin), (14, np.tan), (17, np.arctan),
        (18, np.cosh), (19, np.sinh), (20, np.tanh), (21, np.exp2), (22, lambda x: x - np.floor(x)), (26, np.rint),
        (27, np.floor), (28, np.ceil), (29, np.trunc),
    ],
)  # fmt: skip
def test_functions_of_floats(shader, opcode, formula):
    x = np.array([-2.5, -0.75, 0.5, 1.5], np.float32)

    found = run(shader(*unary(opcode)), x, np.zeros(4, np.float32), (FLOATS, FLOATS))

    np.testing.assert_allclose(found, formula(x.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (30, [1 << 31, 1 << 30, 0, 0xFFFFFFFF]),
        (31, [1, 1, 0, 32]),
        (32, [0, 1, 0xFFFFFFFF, 0]),
        (33, [31, 30, 0xFFFFFFFF, 0]),
        (34, [31, 30, 0xFFFFFFFF, 0xFFFFFFFF]),
    ],
)
def test_functions_of_bits(shader, opcode, expected):
    x = np.array([1, 2, 0, -1], np.int32)

    found = run(shader(*unary(opcode, "i32"), element=INTEGER), x, np.zeros(4, np.int32), (INTEGERS, INTEGERS))

    np.testing.assert_array_equal(found.view(np.uint32), expected)


def test_division_by_zero_gives_all_ones(shader):
    body = (
        HANDLES
        + LOAD.format(t="i32")
        + "  %p = call %dx.types.two @dx.op.binaryWithTwoOuts.i32(i32 43, i32 7, i32 %x)\n"
        + "  %q = extractvalue %dx.types.two %p, 0\n  %m = udiv i32 9, %x\n  %y = add i32 %q, %m\n"
        + STORE.format(t="i32", v="i32 %y")
    )
    declared = "declare %dx.types.two @dx.op.binaryWithTwoOuts.i32(i32, i32, i32)"
    x = np.array([1, 2, 0, 7], np.int32)

    found = run(shader(body, declared, element=INTEGER), x, np.zeros(4, np.int32), (INTEGERS, INTEGERS))

    np.testing.assert_array_equal(found, [7 + 9, 3 + 4, -2, 1 + 1])


def test_floats_outside_become_the_nearest_integers(shader):
    body = (
        HANDLES
        + LOAD.format(t="f32")
        + "  %i = fptosi float %x to i32\n  %y = bitcast i32 %i to float\n"
        + STORE.format(t="f32", v="float %y")
    )
    x = np.array([1e10, -1e10, math.nan, -1.9], np.float32)

    found = run(shader(body), x, np.zeros(4, np.float32), (FLOATS, FLOATS))

    np.testing.assert_array_equal(found.view(np.int32), [2**31 - 1, -(2**31), 0, -1])


def test_threads_wait_for_each_other_at_barriers(shader):
    group = 64
    body = f"""{HANDLES}{LOAD.format(t="i32")}  %t = call i32 @dx.op.flattenedThreadIdInGroup.i32(i32 96)
  %own = getelementptr [64 x i32], ptr addrspace(3) @shared, i32 0, i32 %t
  store i32 %x, ptr addrspace(3) %own, align 4
  br label %halve
halve:
  %step = phi i32 [ {group // 2}, %0 ], [ %half, %join ]
  call void @dx.op.barrier(i32 80, i32 9)
  %active = icmp ult i32 %t, %step
  br i1 %active, label %add, label %join
add:
  %far = add i32 %t, %step
  %other = getelementptr [64 x i32], ptr addrspace(3) @shared, i32 0, i32 %far
  %a = load i32, ptr addrspace(3) %own, align 4
  %b = load i32, ptr addrspace(3) %other, align 4
  %sum = add i32 %a, %b
  store i32 %sum, ptr addrspace(3) %own, align 4
  br label %join
join:
  %half = lshr i32 %step, 1
  %more = icmp ne i32 %half, 0
  br i1 %more, label %halve, label %done
done:
  call void @dx.op.barrier(i32 80, i32 9)
  %first = load i32, ptr addrspace(3) @shared, align 4
{STORE.format(t="i32", v="i32 %first")}"""
    x = np.arange(3 * group, dtype=np.int32)

    found = run(
        shader(body, group=(group, 1), element=INTEGER), x, np.zeros(3 * group, np.int32), (INTEGERS, INTEGERS), 3
    )

    np.testing.assert_array_equal(found, np.repeat(x.reshape(3, group).sum(1), group))


def test_reads_outside_are_zero_and_writes_outside_go_nowhere(shader):
    far = STORE.format(t="f32", v="float %x").replace("i32 %n", f"i32 {OUTSIDE}").replace("  ret void", "")
    body = HANDLES + LOAD.format(t="f32") + far + STORE.format(t="f32", v="float %x")
    source, target = np.array([1, 2, 99, 99], np.float32)[:2], np.full(4, 5, np.float32)

    run(shader(body), source, target[:3], (FLOATS, FLOATS))

    np.testing.assert_array_equal(target, [1, 2, 0, 5])


@pytest.mark.parametrize(
    ("view", "dtype", "given", "kept"),
    [
        (HALVES, np.float16, [1.0, 2.5, 65504.0, -1.0], [1.0, 2.5, 65504.0, -1.0]),
        (FLOATS, np.float32, [1.0, 2.5, 1e30, -1.0], [1.0, 2.5, 1e30, -1.0]),
    ],
)
def test_typed_views_change_the_width_of_floats(shader, view, dtype, given, kept):
    body = HANDLES + LOAD.format(t="f32") + STORE.format(t="f32", v="float %x")
    source, target = np.array(given, np.float32), np.zeros(4, dtype)

    run(shader(body), source, target, (FLOATS, view))

    np.testing.assert_array_equal(target, np.array(kept, dtype))


def test_typed_views_clamp_integers(shader):
    body = HANDLES + LOAD.format(t="i32") + STORE.format(t="i32", v="i32 %x")
    source, target = np.array([0, 200, 300, 70000], np.int32), np.zeros(4, np.uint8)

    run(shader(body, element=INTEGER), source, target, (INTEGERS, BYTES))

    np.testing.assert_array_equal(target, [0, 200, 255, 255])


def test_structures_are_read_by_index_and_offset(shader):
    load = LOAD.format(t="f32").replace("i32 undef", "i32 8")
    body = HANDLES + load + STORE.format(t="f32", v="float %x").replace("i32 undef", "i32 0").replace("i8 15", "i8 5")
    source, target = np.arange(16, dtype=np.float32), np.full(16, -1, np.float32)
    view = View(ResourceKind.STRUCTURED, stride=16)
    bound = [BoundView(array.ctypes.data, 4) for array in (source, target)]

    shader(body, stride=16).run((view, view), bound, (1, 1, 1))

    np.testing.assert_array_equal(target.reshape(4, 4), [[x, -1, x, -1] for x in source[2::4]])


def test_every_thread_changes_a_word_atomically(shader):
    body = f"""{HANDLES}{LOAD.format(t="i32")}
  %old = call i32 @dx.op.atomicBinOp.i32(i32 78, %dx.types.Handle %target, i32 0, i32 0, i32 undef, i32 undef, i32 %x)
  ret void"""
    x = np.arange(12, dtype=np.int32)

    found = run(shader(body, element=INTEGER), x, np.zeros(1, np.int32), (INTEGERS, INTEGERS), 3)

    assert found[0] == x.sum()


def test_a_buffer_tells_how_many_elements_it_has(shader):
    body = f"""{HANDLES}
  %size = call %dx.types.Dimensions @dx.op.getDimensions(i32 72, %dx.types.Handle %source, i32 undef)
  %x = extractvalue %dx.types.Dimensions %size, 0
{STORE.format(t="i32", v="i32 %x")}"""
    source, target = np.zeros(11, np.int32), np.zeros(4, np.int32)

    np.testing.assert_array_equal(run(shader(body, element=INTEGER), source, target, (INTEGERS, INTEGERS)), 11)


def test_an_intrinsic_that_is_not_there_is_named(shader):
    body = HANDLES + "  %w = call i32 @dx.op.waveGetLaneIndex(i32 111)\n" + STORE.format(t="i32", v="i32 %w")
    made = shader(body, "declare i32 @dx.op.waveGetLaneIndex(i32)", element=INTEGER)

    with pytest.raises(UnsupportedShaderError, match=r"dx\.op\.waveGetLaneIndex \(opcode 111\)"):
        run(made, np.zeros(4, np.int32), np.zeros(4, np.int32), (INTEGERS, INTEGERS))


def test_what_is_no_shader_is_said_to_be_none():
    with pytest.raises(UnsupportedShaderError, match="begins with DXBC"):
        Shader(bytes(64))


def test_doubles_become_halves_in_one_rounding(shader):
    body = (
        HANDLES
        + LOAD.format(t="f32")
        + "  %d = fpext float %x to double\n  %near = fmul double %d, 0x3FF0000000000001\n"
        + "  %h = fptrunc double %near to half\n  %y = fpext half %h to float\n"
        + STORE.format(t="f32", v="float %y")
    )
    x = np.array([1.00048828125, 65519.99, 1e-8, math.inf], np.float32)  # the first lies between two halves

    found = run(shader(body), x, np.zeros(4, np.float32), (FLOATS, FLOATS))

    np.testing.assert_array_equal(found, (x.astype(np.float64) * (1 + 2**-52)).astype(np.float16).astype(np.float32))


def test_a_program_that_goes_takes_nothing_from_those_that_are_made_later(shader, monkeypatch):
    monkeypatch.setattr(program, "_program", program._program.__wrapped__)  # kept by nobody
    x = np.array([-2.5, -0.75, 0.5, 1.5], np.float32)

    for opcode, formula in ((6, np.abs), (27, np.floor), (28, np.ceil)):
        found = run(shader(*unary(opcode)), x, np.zeros(4, np.float32), (FLOATS, FLOATS))
        gc.collect()
        np.testing.assert_array_equal(found, formula(x))
