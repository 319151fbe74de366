"""new_program(): a native program as the environment asks for it, guarded or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.program.program import NativeProgram

if TYPE_CHECKING:
    from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
    from ort_core.cpu.lowering.steps import Step
    from ort_core.cpu.program.program_record import ProgramRecord
    from ort_core.cpu.threads.pool import ThreadPool
    from ort_core.plugin.ir import Node, Value


def new_program(
    record: ProgramRecord, pool: ThreadPool, modules: Sequence[CompiledModule], kernels: Sequence[tuple[int, str]],
    inputs: tuple[Value, ...] = (), outputs: tuple[Value, ...] = (), steps: tuple[Step, ...] = (),
    requirers: tuple[tuple[Node, ...], ...] = (),
) -> NativeProgram:  # fmt: skip
    """Return a program; the parameters are those of ``NativeProgram``."""
    mode = guarded_mode()
    if mode is GuardedMode.OFF:
        return NativeProgram(record, pool, modules, kernels, inputs, outputs, steps, requirers)
    from ort_core.cpu.guarded.program import GuardedProgram  # only tests ask for it

    program = GuardedProgram(record, pool, modules, kernels, inputs, outputs, steps, requirers)
    program.mode = mode
    return program
