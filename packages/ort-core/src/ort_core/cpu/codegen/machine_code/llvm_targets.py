"""Targets of the LLVM that is installed: this machine, restrictions of it, any other; and LLVM's machines for them."""

from __future__ import annotations

import functools
import logging
import sys

import llvmlite
import llvmlite.binding as llvm

from ort_core.cpu.codegen.machine_code.compiled_module import compiling
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.machine_code.target import target_of as known_target
from ort_core.cpu.codegen.machine_code.target_setting import target_setting
from ort_core.plugin import Rejection

log = logging.getLogger(__name__)
TILES = "amx-"  # how LLVM's names of features begin that need registers of tiles


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
        if any(on and name.startswith(TILES) for name, on in features.items()):
            features = _with_permitted_tiles(features)
        setting = target_setting()
        if setting is not None:
            features, cpu = setting.features(features), _generic(triple, cpu)
        return target_of(triple, cpu, ",".join(sorted(f"{'+' if on else '-'}{name}" for name, on in features.items())))


def _with_permitted_tiles(features: dict[str, bool]) -> dict[str, bool]:
    """Return the features of a processor with registers of tiles, without them where the system withholds them."""
    refusal: Rejection | None = Rejection("only Linux is asked for them")
    if sys.platform == "linux":
        from ort_core.cpu.codegen.machine_code.processor_linux import permitted_tiles  # of this system

        refusal = permitted_tiles()
    if refusal is None:
        return features
    log.info("products use no registers of tiles (AMX): %s", refusal.reason)
    return {name: on and not name.startswith(TILES) for name, on in features.items()}


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


def target_machine(target: Target) -> llvm.TargetMachine:
    """Return what writes machine code for a target; held by one caller at a time (``compiling``)."""
    initialize(target)
    found = llvm.Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="jitdefault"
    )


def initialize(target: Target) -> None:
    """Register the processors that a target needs with LLVM."""
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
