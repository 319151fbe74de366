"""Compiled shaders: made once for each shader and the formats bound to it, run over the memory of the rig."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import llvmlite.binding as llvm

from directml_rig import fetch
from directml_rig.dxil.container import bitcode_of
from directml_rig.dxil.module import ShaderModule, module_of
from directml_rig.dxil.translation import translated
from directml_rig.dxil.views import View
from directml_rig.errors import UnsupportedShaderError

_LOCK = threading.Lock()  # groupshared memory and the sink are global variables of a program; it is made once


class BoundView(ctypes.Structure):
    """What a program sees of a view: its memory and its count, of elements or of bytes."""

    _fields_ = [("memory", ctypes.c_uint64), ("count", ctypes.c_uint64)]


class Shader:
    """A shader as the library gave it, compiled when it is first run with given formats."""

    def __init__(self, container: bytes) -> None:
        self.container = container
        self.module = _module(container)

    def run(self, views: Sequence[View], bound: Sequence[BoundView], groups: tuple[int, int, int]) -> None:
        """Run every thread of every group.

        Args:
            views: how each slot is seen; of typed ones the formats count.
            bound: the memory of each slot.
            groups: how many along each axis; none where one is zero.

        Raises:
            UnsupportedShaderError: the shader does something that the rig does not know.
        """
        if 0 in groups:
            return
        memory = (BoundView * max(1, len(bound)))(*bound)
        with _LOCK:
            program = _program(self.container, tuple(views))  # two threads would make it twice, and one be freed
            program.dispatch(ctypes.addressof(memory), *groups)


@functools.cache
def _module(container: bytes) -> ShaderModule:
    return module_of(bitcode_of(container))


@functools.cache
def _features() -> str:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.get_host_cpu_features().flatten()


def _machine() -> llvm.TargetMachine:
    """Return a description of this processor; an engine takes its own, and frees it when it goes."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=2, jit=True
    )


class _Program:
    """Native code of one shader; kept as an object file in the rig's folder, since LLVM takes 0.1 to 0.3 s for it."""

    def __init__(self, text: str) -> None:
        kept = _kept_object(text)
        if not kept.exists():
            _store(kept, _object_code(text))
        empty = llvm.parse_assembly("", llvm.create_context())
        self._engine = llvm.create_mcjit_compiler(empty, _machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_path(str(kept)))
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
        self.dispatch = kind(self._engine.get_function_address("rig.dispatch"))


def _kept_object(text: str) -> Path:
    facts = [text, llvm.get_default_triple(), llvm.get_host_cpu_name(), _features(), str(llvm.llvm_version_info)]
    return fetch.folder() / "objects" / f"{hashlib.sha256(chr(10).join(facts).encode()).hexdigest()}.o"


def _store(kept: Path, content: bytes) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(kept)


def _object_code(text: str) -> bytes:
    machine = _machine()
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise UnsupportedShaderError(f"the translated shader is not valid: {error}") from error
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


@functools.cache
def _program(container: bytes, views: tuple[View, ...]) -> _Program:
    return _Program(translated(_module(container), views))
