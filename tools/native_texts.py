"""What a lowering becomes in the place of machine code: lines of text for ``replay``, kernels for ``ship_kernels``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from ort_core.cpu.codegen.llvm_ir import deferred_kernel as deferred_kernel
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code import code_cache, known_host
from ort_core.cpu.codegen.machine_code.code_cache import ModuleSource
from ort_core.cpu.codegen.machine_code.code_table import CodeTable
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import KernelText, Pointer, Step
from ort_core.cpu.lowering.views import Buffer
from ort_core.cpu.program import program_building

NOWHERE = 4096  # an address that is none; programs that are recorded never run


@contextmanager
def recorded_programs() -> Iterator[list[str]]:
    """Record every program that is built meanwhile; names of kernels do not depend on the files that write them.

    The lines are complete behind the block: weights are packed while the lowering goes on.
    """
    lines: list[str] = []
    weights: dict[int, np.ndarray] = {}

    def record(
        lowering: Lowering, target: Target, num_threads: int
    ) -> tuple[list[CompiledModule], list[tuple[int, str]]]:
        lines.extend(f"kernel {kernel.name}\n{_text(kernel)}" for kernel in lowering.kernels.values())
        numbers: dict[Buffer, str] = {}
        lines.extend(_step(step, numbers) for step in lowering.steps)
        lines.extend(f"equal {left} {right}" for left, right in lowering.equal)
        for buffer, name in numbers.items():
            lines.append(f"{name} {buffer.dtype.text} {buffer.place} {buffer.count}")
            if isinstance(buffer.array, CodeTable):  # its addresses are those of this process
                lines[-1] += f" {buffer.array.names}"
            elif buffer.array is not None:
                weights[len(lines) - 1] = buffer.array
        module = CompiledModule(b"", lambda name: NOWHERE, None)
        return [module], [(0, step.kernel) for step in lowering.steps]

    with (
        patch.object(program_building, "_compile", record),
        patch.object(deferred_kernel, "generators_digest", lambda: ""),
    ):
        yield lines
        for number, array in weights.items():
            lines[number] += f" {hashlib.sha256(np.ascontiguousarray(array)).hexdigest()}"


@contextmanager
def recorded_kernels(target: Target) -> Iterator[dict[str, KernelText]]:
    """Record the kernels of every program that is built meanwhile, for any target; nothing is compiled."""
    kernels: dict[str, KernelText] = {}
    module = CompiledModule(b"", lambda name: NOWHERE, None)
    compiled_together = code_cache.compiled_together

    def compiled(
        sources: Sequence[ModuleSource], target: Target | None, *, num_threads: int = 1
    ) -> list[CompiledModule]:
        if target is None:  # the threads' own code, which runs here
            return compiled_together(sources, target, num_threads=num_threads)
        return [module for _ in sources]

    def record(
        lowering: Lowering, target: Target, num_threads: int
    ) -> tuple[list[CompiledModule], list[tuple[int, str]]]:
        kernels.update(lowering.kernels)
        return [module], [(0, step.kernel) for step in lowering.steps]

    with (
        patch.object(program_building, "_compile", record),
        patch.object(code_cache, "compiled_together", compiled),
        patch.object(known_host, "known_host", lambda: target),
    ):
        yield kernels


def _text(kernel: KernelText) -> str:
    code = kernel.code
    if isinstance(code, DeferredKernel):
        return module_text(code.generate(code.name))
    return module_text([code]) if isinstance(code, Emitter) else code


def _step(step: Step, numbers: dict[Buffer, str]) -> str:
    def name(buffer: Buffer) -> str:
        return numbers.setdefault(buffer, f"%{len(numbers)}")

    arguments = [
        f"{name(each.buffer)}+{each.offset}" if isinstance(each, Pointer) else str(each) for each in step.arguments
    ]
    reads, writes = ([name(buffer) for buffer in buffers] for buffers in (step.reads, step.writes))
    facts = (step.work, step.flops, step.nbytes, step.is_divisible, step.in_place and [*map(name, step.in_place)])
    return f"step {step.kernel} {arguments} {reads} {writes} {[str(each) for each in facts]}"
