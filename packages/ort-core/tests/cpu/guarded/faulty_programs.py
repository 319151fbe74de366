"""Programs of hand-written kernels, sound and faulty, to see that guarded runs tell them apart.

As a script it runs one of them: what touches a guard page ends the process.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np

from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.lowering.steps import KernelText, Pointer, Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.cpu.program.program import NativeProgram
from ort_core.cpu.program.program_building import build_program
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType, Shape, TensorType, Value

COUNT = 13
_SIGNATURE = "(ptr %args, i64 %piece, i64 %pieces, i64 %thread)"
_LOOP = """
define void @NAME SIGNATURE {
entry:
  %to = load ptr, ptr %args
  %from.p = getelementptr i64, ptr %args, i64 1
  %from = load ptr, ptr %from.p
  br label %next
next:
  %i = phi i64 [FIRST, %entry], [%i1, %next]
  %s = getelementptr i8, ptr %from, i64 %i
  %d = getelementptr i8, ptr %to, i64 %i
  %x = load i8, ptr %s
  store i8 %x, ptr %d
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, LAST
  br i1 %more, label %next, label %out
out:
  ret void
}
"""


def copy(name: str, first: int = 0, last: int = COUNT) -> KernelText:
    """Return a kernel that copies bytes ``first`` to ``last`` of its second argument to its first."""
    text = _LOOP.replace("NAME", name).replace("SIGNATURE", _SIGNATURE)
    return KernelText(name, text.replace("FIRST", str(first)).replace("LAST", str(last)))


def program(kernels: list[KernelText], pool: ThreadPool, place: Place = Place.ARENA) -> NativeProgram:
    """Return a program that copies an input of 13 bytes through a buffer to an output by two kernels."""
    type_ = TensorType(DataType.UINT8, Shape((COUNT,)))
    given, made = Value("given", type_), Value("made", type_)
    source, between, target = (Buffer(DataType.UINT8, COUNT, place, 0) for place in (Place.INPUT, place, Place.OUTPUT))
    steps = [
        Step(kernels[0].name, (Pointer(between), Pointer(source)), (source,), (between,), 1),
        Step(kernels[1].name, (Pointer(target), Pointer(between)), (between,), (target,), 1),
    ]
    lowering = SimpleNamespace(
        steps=steps,
        kernels={k.name: k for k in kernels},
        inputs=[given],
        outputs=[made],
        equal={},
        target=host_target(),
    )
    return build_program(lowering, pool)


FAULTS = {
    "none": [copy("first"), copy("second")],
    "read_past_the_end": [copy("first"), copy("second", last=COUNT + 1)],
    "read_before_the_beginning": [copy("first"), copy("second", first=-1)],
    "write_past_the_end": [copy("first", last=COUNT + 1), copy("second")],
    "gap_in_what_is_written": [copy("first", first=4, last=5), copy("second")],
    "nothing_in_the_output": [copy("first"), copy("second", first=2)],
}


if __name__ == "__main__":
    given = np.arange(COUNT, dtype=np.uint8)
    (found,) = program(FAULTS[sys.argv[1]], ThreadPool(1)).run([given])
    assert (found == given).all()
