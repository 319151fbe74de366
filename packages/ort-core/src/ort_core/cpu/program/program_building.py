"""build_program(): from a finished lowering to a native program: slots, the argument table, and machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code.code_cache import (
    ModuleSource,
    compiled_together,
    deferred_source,
    joined_source,
    shipped_for,
    text_source,
)
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.shipped_code import text_name
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.guarded.choose import new_program
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.inspection.kernel_recording import note_kernels
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import KernelText, Pointer, Step
from ort_core.cpu.lowering.value_types import stored_type
from ort_core.cpu.lowering.views import Buffer
from ort_core.cpu.program.in_place import in_place_outputs
from ort_core.cpu.program.order import StepOrder
from ort_core.cpu.program.program import NativeProgram
from ort_core.cpu.program.program_record import ProgramRecord
from ort_core.cpu.program.relocations import Relocations
from ort_core.cpu.program.sizes import SizeProgram, Types, bindings
from ort_core.cpu.program.slots import Slots
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import KnownDim


def build_program(lowering: Lowering, pool: ThreadPool) -> NativeProgram:
    """Return a lowered group as a program that runs on the threads of ``pool``."""
    note_kernels(lowering.kernels)
    modules, kernels = _compile(lowering, lowering.target, pool.num_threads)
    return new_program(
        record_of(lowering), pool, modules, kernels, tuple(lowering.inputs), tuple(lowering.outputs),
        tuple(lowering.steps), tuple(tuple(nodes) for nodes in lowering.equal.values()),
    )  # fmt: skip


def record_of(lowering: Lowering) -> ProgramRecord:
    """Decide everything that does not depend on sizes: slots of the arena, positions of addresses, barriers."""
    steps = tuple(lowering.steps)
    inputs = [stored_type(value) for value in lowering.inputs]
    outputs = [stored_type(value) for value in lowering.outputs]
    equal, bound = tuple(lowering.equal), tuple(bindings(inputs))
    atoms = [binding.atom for binding in bound]
    slots = Slots(steps, shares=guarded_mode() is GuardedMode.OFF)
    layout = _Layout(steps, slots, outputs)
    return ProgramRecord(
        tuple(value.name for value in lowering.inputs),
        inputs,
        tuple(value.name for value in lowering.outputs),
        outputs,
        bound,
        equal,
        SizeProgram([size for _, shape in inputs for size in shape] + [left - right for left, right in equal], atoms),
        SizeProgram(layout.sizes, atoms),
        8 * np.array(layout.starts, np.int64),
        layout.argument_count,
        layout.outputs_at,
        layout.work_at,
        tuple(slots.per_thread),
        slots.fixed(),
        Relocations.of(layout.buffers, slots.of, len(inputs), len(outputs)),
        StepOrder.of(steps, slots.find),
        in_place_outputs(steps),
    )


class _Layout:
    """The sizes that a program evaluates, and positions in its argument table, by the base that they count from."""

    def __init__(self, steps: Sequence[Step], slots: Slots, outputs: Types) -> None:
        self.sizes: list[KnownDim] = []
        self.starts: list[int] = []
        self.buffers: dict[Buffer, list[int]] = {}
        sizes, buffers = self.sizes, self.buffers
        for step in steps:
            self.starts.append(len(sizes))
            for argument in step.arguments:
                if isinstance(argument, Pointer):
                    places = buffers.get(argument.buffer)
                    if places is None:
                        places = buffers[argument.buffer] = []
                    places.append(len(sizes))
                    sizes.append(argument.offset * argument.buffer.itemsize if argument.offset else 0)
                else:
                    sizes.append(argument)
        self.argument_count = len(sizes)
        self.sizes.extend(slots.nbytes)
        self.outputs_at = len(self.sizes)
        for _, shape in outputs:
            self.sizes.extend(shape)
        self.work_at = len(self.sizes)
        self.sizes.extend(step.work for step in steps)
        self.sizes.extend(step.most_pieces for step in steps if step.most_pieces is not None)


def _compile(
    lowering: Lowering, target: Target, num_threads: int
) -> tuple[list[CompiledModule], list[tuple[int, str]]]:
    """Return modules, and for each step the number of its module and the name of its kernel."""
    shipped = shipped_for(target)
    small = [each for each in map(_small, lowering.kernels.values()) if each and not _comes_compiled(each, shipped)]
    functions = [each for each in small if isinstance(each, Emitter)]
    sources = [text_source(module_text(functions), target)] if functions else []
    where = {function.name: 0 for function in functions}
    for is_vectorized in (False, True):
        joined = [each for each in small if isinstance(each, DeferredKernel) and each.is_vectorized is is_vectorized]
        if joined:
            where.update({deferred.name: len(sources) for deferred in joined})
            sources.append(joined_source(joined, target))
    for kernel in lowering.kernels.values():
        if kernel.name not in where:
            where[kernel.name] = len(sources)
            sources.append(_source(kernel, target))
    return compiled_together(sources, target, num_threads=num_threads), [
        (where[step.kernel], step.kernel) for step in lowering.steps
    ]


def _small(kernel: KernelText) -> Emitter | DeferredKernel | None:
    """Return the code of a kernel that shares a module with others, where it is compiled."""
    code = kernel.code
    return code if isinstance(code, Emitter) or (isinstance(code, DeferredKernel) and code.is_joined) else None


def _comes_compiled(code: Emitter | DeferredKernel, shipped: Mapping[str, memoryview]) -> bool:
    if not shipped:
        return False
    name = code.name if isinstance(code, DeferredKernel) else text_name(module_text([code]), is_vectorized=False)
    return name in shipped


def _source(kernel: KernelText, target: Target) -> ModuleSource:
    """Return the module of a kernel that has one of its own."""
    if isinstance(kernel.code, DeferredKernel):
        return deferred_source(kernel.code, target)
    text = module_text([kernel.code]) if isinstance(kernel.code, Emitter) else kernel.code
    return text_source(text, target, is_vectorized=kernel.is_vectorized)
