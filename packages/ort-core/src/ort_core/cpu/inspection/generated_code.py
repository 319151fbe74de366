"""The code of kernels as text: LLVM IR as it is generated, as LLVM's passes leave it, and assembly.

Programs keep no text: a graph is lowered once more, with its kernels noted, and each is written as a module of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code.jit import assembly, optimized_text
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.lowering.steps import KernelText
from ort_core.plugin import Rejection

FORMS = ("llvm", "llvm-optimized", "asm")


def code_of(
    kernels: Mapping[str, KernelText], form: str, kernel: str | None, target: Target
) -> dict[str, str] | Rejection:
    """Return the text of kernels by name.

    Args:
        kernels: all kernels.
        form: one of ``FORMS``.
        kernel: the name of the only one wanted, or how it begins.
        target: what assembly is for.
    """
    if form not in FORMS:
        return Rejection(f"code is shown as {', '.join(FORMS)}, not as {form!r}")
    chosen = {name: text for name, text in kernels.items() if kernel is None or name.startswith(kernel)}
    return {name: _written(text, form, target) for name, text in chosen.items()}


def _written(kernel: KernelText, form: str, target: Target) -> str:
    code = kernel.code
    text = _ir(code)
    if form == "llvm":
        return text
    is_vectorized = code.is_vectorized if isinstance(code, DeferredKernel) else kernel.is_vectorized
    return (assembly if form == "asm" else optimized_text)(text, target, is_vectorized=is_vectorized)


def _ir(code: Emitter | str | DeferredKernel) -> str:
    if isinstance(code, Emitter):
        return module_text([code])
    return code if isinstance(code, str) else module_text(list(code.generate(code.name)))
