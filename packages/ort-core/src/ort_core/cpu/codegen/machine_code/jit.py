"""Compilation: LLVM IR text to object files and machine code in this process, for this host or any other target."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import llvmlite.binding as llvm

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule, compiling
from ort_core.cpu.codegen.machine_code.llvm_calls import emit_object, run_passes
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, initialize, target_machine
from ort_core.cpu.codegen.machine_code.module_text import ModuleText
from ort_core.cpu.codegen.machine_code.object_loading import load_object
from ort_core.cpu.codegen.machine_code.target import SCALAR_CHAINS, Target
from ort_core.plugin.forks import side_threads

MOST_AT_ONCE = 8  # modules: each holds some megabytes while it is compiled


def compile_module(text: str, target: Target | None = None, *, is_vectorized: bool = False) -> CompiledModule:
    """Optimize and compile a module for the host (or a restriction of it), ready to be called.

    Args:
        text: LLVM IR.
        target: what the code is for.
        is_vectorized: as ``ModuleText`` has it.

    Raises:
        RuntimeError: the text is no valid LLVM IR; a bug of a generator.
    """
    (module,) = compile_modules([ModuleText(text, is_vectorized)], target)
    return module


def compile_modules(
    texts: Iterable[ModuleText], target: Target | None = None, *, num_threads: int = 1
) -> list[CompiledModule]:
    """Compile modules side by side; returns them in the order of the texts.

    Args:
        texts: taken one by one: while the next is written, those before it are compiled.
        target: what the code is for; the host where it is ``None``.
        num_threads: how many are compiled at once, up to ``MOST_AT_ONCE``.

    Raises:
        RuntimeError: a text is no valid LLVM IR; a bug of a generator.
    """
    target = target or host_target()
    with compiling:
        initialize(target)
        return [load_object(code, target) for code in _object_codes(texts, target, min(num_threads, MOST_AT_ONCE))]


def _object_codes(texts: Iterable[ModuleText], target: Target, num_threads: int) -> list[bytes]:
    if num_threads == 1:
        return [object_of(text, target) for text in texts]
    with _Compilers(target, num_threads) as compilers:
        pending: list[Future[bytes]] = []
        last = None
        for text in texts:
            if last is not None:
                pending.append(compilers.start(last))
            last = text
        own = [] if last is None else [object_of(last, target)]
        return [each.result() for each in pending] + own


class _Compilers:
    """Threads that compile; none where there is no second module."""

    def __init__(self, target: Target, num_threads: int) -> None:
        self._target, self._num_threads = target, num_threads
        self._pool: ThreadPoolExecutor | None = None

    def start(self, text: ModuleText) -> Future[bytes]:
        if self._pool is None:
            self._pool = side_threads(self._num_threads, "ort-compiling")
        return self._pool.submit(object_of, text, self._target)

    def __enter__(self) -> _Compilers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def object_of(text: ModuleText, target: Target) -> bytes:
    """Return the object code of a module, made in a context of its own: others may be compiled meanwhile."""
    context = llvm.create_context()
    machine = target_machine(target)
    module = _optimized(text, machine, target, context)
    try:
        return emit_object(machine, module)
    finally:
        module.close()
        context.close()


def object_code(text: str, target: Target, *, is_vectorized: bool = False) -> bytes:
    """Return the object file of a module for any target, also one that cannot run here."""
    with compiling:
        initialize(target)
        return object_of(ModuleText(text, is_vectorized), target)


def assembly(text: str, target: Target, *, is_vectorized: bool = False) -> str:
    """Return the assembly of a module for any target, also one that cannot run here."""
    with compiling:
        machine = target_machine(target)
        return str(machine.emit_assembly(_optimized(ModuleText(text, is_vectorized), machine, target)))


def optimized_text(text: str, target: Target, *, is_vectorized: bool = False) -> str:
    """Return a module's LLVM IR as the passes leave it that come before the machine code for a target."""
    with compiling:
        return str(_optimized(ModuleText(text, is_vectorized), target_machine(target), target))


def _optimized(
    source: ModuleText, machine: llvm.TargetMachine, target: Target, context: llvm.ContextRef | None = None
) -> llvm.ModuleRef:
    module = llvm.parse_assembly(source.text, context)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(3)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = not source.text.startswith(SCALAR_CHAINS)
    builder = llvm.create_pass_builder(machine, tuning)
    run_passes(_few_passes() if source.is_vectorized else builder.getModulePassManager(), module, builder)
    return module


def _few_passes() -> llvm.ModulePassManager:
    """Return the passes that code written for vectors needs: variables become registers, loops test at their end.

    A tenth of the time of the whole pipeline, which is two thirds of the time that a convolution takes to compile; the
    code runs as fast (64 to 64 channels, 3x3: 115.9 GFLOP/s against 115.0 on one core).
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.add_instruction_combine_pass()
    passes.add_aggressive_dce_pass()
    return passes
