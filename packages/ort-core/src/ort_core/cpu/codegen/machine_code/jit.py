"""Compilation: LLVM IR text to object files and machine code in this process, for this host or any other target."""

from __future__ import annotations

import functools

import llvmlite
import llvmlite.binding as llvm

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule as CompiledModule
from ort_core.cpu.codegen.machine_code.compiled_module import compiling, load_object
from ort_core.cpu.codegen.machine_code.target import SCALAR_CHAINS
from ort_core.cpu.codegen.machine_code.target import Target as Target
from ort_core.cpu.codegen.machine_code.target import target_of as known_target
from ort_core.cpu.codegen.machine_code.target_setting import target_setting


def target_of(triple: str, cpu: str, features: str) -> Target:
    """Return a target of this LLVM; the vector unit is read off the features."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return known_target(triple, cpu, features, f"llvm{version}|{llvmlite.__version__}")


@functools.cache
def host_target() -> Target:
    """Return the target that is this machine, or what ``ORT_CPU_TARGET`` asked for instead when the process began.

    Raises:
        InvalidArgument: this machine cannot run what it asks for.
    """
    with compiling:
        _initialize_native()
        features, cpu, triple = dict(llvm.get_host_cpu_features()), llvm.get_host_cpu_name(), llvm.get_process_triple()
        setting = target_setting()
        if setting is not None:
            features, cpu = setting.features(features), _generic(triple, cpu)
        return target_of(triple, cpu, ",".join(sorted(f"{'+' if on else '-'}{name}" for name, on in features.items())))


def _generic(triple: str, cpu: str) -> str:
    """Return a processor that has no features but those that are named."""
    return "x86-64" if "x86_64" in triple else cpu


def restricted_target(*without: str) -> Target:
    """Return the host without some features, such as ``avx512f``, to test code for lesser machines."""
    host = host_target()
    kept = []
    for feature in host.features.split(","):
        name = feature[1:]
        kept.append(f"-{name}" if any(name.startswith(prefix) for prefix in without) else feature)
    return target_of(host.triple, _generic(host.triple, host.cpu), ",".join(kept))


def compile_module(text: str, target: Target | None = None, *, is_vectorised: bool = False) -> CompiledModule:
    """Optimise and compile a module for the host (or a restriction of it), ready to be called.

    Args:
        text: LLVM IR.
        target: what the code is for.
        is_vectorised: nothing of it is left to be unrolled, vectorised or inlined; then few passes do.

    Raises:
        RuntimeError: the text is no valid LLVM IR; a bug of a generator.
    """
    target = target or host_target()
    with compiling:
        machine = _machine(target)
        module = _optimized(text, machine, target, is_vectorised)
        object_code = machine.emit_object(module)
    return load_object(object_code, target)


def load_by_llvm(object_code: bytes, target: Target | None = None) -> CompiledModule:
    """Make object code callable by LLVM's loader, which knows every format of object files."""
    target = target or host_target()
    with compiling:
        # An engine for each: of several in one, MCJIT finds constants by the offset table of the first (x86-64).
        module = llvm.parse_assembly("")
        module.triple = target.triple
        engine = llvm.create_mcjit_compiler(module, _machine(target))
        engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        engine.finalize_object()

    def find(function: str) -> int:
        with compiling:
            return int(engine.get_function_address(function))

    return CompiledModule(object_code, find, engine)


def assembly(text: str, target: Target, *, is_vectorised: bool = False) -> str:
    """Return the assembly of a module for any target, also one that cannot run here."""
    with compiling:
        machine = _machine(target)
        return str(machine.emit_assembly(_optimized(text, machine, target, is_vectorised)))


def optimized_text(text: str, target: Target, *, is_vectorised: bool = False) -> str:
    """Return a module's LLVM IR as the passes leave it that come before the machine code for a target."""
    with compiling:
        return str(_optimized(text, _machine(target), target, is_vectorised))


def _machine(target: Target) -> llvm.TargetMachine:
    _initialize(target)
    found = llvm.Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="jitdefault"
    )


def _optimized(text: str, machine: llvm.TargetMachine, target: Target, is_vectorised: bool) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(3)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = not text.startswith(SCALAR_CHAINS)
    builder = llvm.create_pass_builder(machine, tuning)
    passes = _few_passes() if is_vectorised else builder.getModulePassManager()
    passes.run(module, builder)
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


def _initialize(target: Target) -> None:
    _initialize_native()
    if target.triple.partition("-")[0] != llvm.get_process_triple().partition("-")[0]:
        _initialize_all()


@functools.cache
def _initialize_native() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _initialize_all() -> None:
    """Register every processor that LLVM knows: to write code for others; takes memory that a load has no use for."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
