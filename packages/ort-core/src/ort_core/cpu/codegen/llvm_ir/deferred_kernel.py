"""Kernels that are written only when nobody has compiled them before: their name says what would be written.

A model of a hundred convolutions takes half a second to write as text; a load that finds all objects in the cache has
no use for it. The name covers the facts that the text is made of, and the source of every generator.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.plugin import frozen

if TYPE_CHECKING:
    from ort_core.cpu.codegen.llvm_ir.emitter import Emitter

SOURCES = (Path(__file__).parents[1], Path(__file__).parents[3] / "loops")
"""Where texts of kernels come from: the generators, and the scalar expressions and polynomials that they print."""


@frozen
class DeferredKernel:
    """A module to be written: ``generate`` gives its functions, of which ``name`` is the kernel.

    Attributes:
        name: the kernel's symbol; equal names mean equal texts.
        generate: writes the functions, given the name.
        is_vectorized: few passes do to compile it (``jit.compile_module``).
        is_joined: the kernel is small: such kernels of a program share a module, those for few passes another one.
    """

    name: str
    generate: Callable[[str], Sequence[Emitter]]
    is_vectorized: bool = False
    is_joined: bool = False


def deferred_kernel(
    prefix: str,
    facts: str,
    generate: Callable[[str], Sequence[Emitter]],
    *,
    is_vectorized: bool = False,
    is_joined: bool = False,
) -> DeferredKernel:
    """Return a module whose text is determined by ``facts`` and the generators, the target apart."""
    name = name_of_facts(prefix, facts, is_vectorized=is_vectorized)
    return DeferredKernel(name, generate, is_vectorized, is_joined)


def name_of_facts(prefix: str, facts: str, *, is_vectorized: bool) -> str:
    """Return what identifies a text that is determined by ``facts`` and the generators, the target apart."""
    digest = hashlib.sha256(f"{generators_digest()}|{prefix}|{is_vectorized}|{facts}".encode()).hexdigest()
    return f"{prefix}_{digest[:24]}"


@functools.cache
def generators_digest() -> str:
    """Return a digest of the source of all generators, and of what they print: other sources, other texts."""
    return digest_of_sources(SOURCES)


def digest_of_sources(folders: Sequence[Path]) -> str:
    """Return a digest of the names and contents of all Python files in these folders, however deep they lie."""
    hasher = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            hasher.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return hasher.hexdigest()
