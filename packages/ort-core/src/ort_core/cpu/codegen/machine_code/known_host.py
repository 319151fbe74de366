"""known_host(): this machine as a target, out of the cache where an earlier process asked LLVM.

LLVM takes 40 MB and a tenth of a second to import. A load whose machine code is all in the cache does without it.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.machine_code.compiling_elsewhere import host_elsewhere, start_early
from ort_core.cpu.codegen.machine_code.host_key import host_key
from ort_core.cpu.codegen.machine_code.target import target_of
from ort_core.plugin import Rejection
from ort_core.plugin.cache import ArtefactCache, CacheKey, digest_of, package_facts

if TYPE_CHECKING:
    from ort_core.cpu.codegen.machine_code.target import Target

log = logging.getLogger(__name__)

_TARGETS = "ort_core.cpu.codegen.machine_code.llvm_targets"


@functools.cache
def known_host() -> Target:
    """Return what ``llvm_targets.host_target`` returns, without LLVM if the cache knows it.

    Raises:
        ImportError: llvmlite is not installed.
        InvalidArgument: this machine cannot run what ``ORT_CPU_TARGET`` asks for.
    """
    cache, key = ArtefactCache(), _key()
    is_asked = _TARGETS in sys.modules  # perhaps under another ORT_CPU_TARGET: it must not be stored under this one
    stored = None if is_asked else _decoded(cache.get(key))
    if stored is not None:
        return stored
    elsewhere = Rejection("LLVM is here") if is_asked else host_elsewhere()
    found = _asked_here() if isinstance(elsewhere, Rejection) else elsewhere
    if not is_asked:
        cache.put(key, json.dumps([found.triple, found.cpu, found.features, found.compiler]).encode())
    return found


@functools.cache  # once: whoever asks again knows it, or has no cache
def ask_early() -> None:
    """Start the process that ``known_host`` will ask, if it has to ask one: it takes as long as reading a model."""
    if _TARGETS not in sys.modules and ArtefactCache().get(_key()) is None:
        start_early()


def _asked_here() -> Target:
    from ort_core.cpu.codegen.machine_code.llvm_targets import host_target  # imports llvmlite

    return host_target()


def _key() -> CacheKey:
    return CacheKey("cpu-target", digest_of([f"{package_facts()}|{host_key()}".encode()]))


def _decoded(content: bytes | None) -> Target | None:
    if content is None:
        return None
    try:
        triple, cpu, features, compiler = json.loads(content)
        return target_of(str(triple), str(cpu), str(features), str(compiler))
    except (ValueError, TypeError) as error:
        log.warning("the processor that the cache tells cannot be read and is asked for again: %s", error)
        return None
