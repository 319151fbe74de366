"""Compiled modules by content: in this process by reference, between processes in the artefact cache."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.emitter import module_text
from ort_core.cpu.codegen.jit import CompiledModule, Target, compile_module, digest, load_object
from ort_core.plugin.cache import ArtefactCache, CacheKey

if TYPE_CHECKING:
    from ort_core.cpu.codegen.late_text import LateText

_loaded: weakref.WeakValueDictionary[bytes, CompiledModule] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def compiled(text: str, target: Target) -> CompiledModule:
    """Return the machine code of a module: from this process, from the cache, or compiled now."""
    return _found_or_made(digest(text, target), target, lambda: compile_module(text, target))


def compiled_late(late: LateText, target: Target) -> CompiledModule:
    """Return the machine code of a module that is written only if neither this process nor the cache has it."""

    def write() -> CompiledModule:
        return compile_module(module_text(late.generate(late.name)), target, is_vectorised=late.is_vectorised)

    return _found_or_made(digest(late.name, target), target, write)


def names_of(modules: Iterable[CompiledModule]) -> dict[bytes, CompiledModule]:
    """Return modules by what identifies their text and target; those that did not come from here are left out."""
    wanted = {id(module) for module in modules}
    with _lock:
        return {name: module for name, module in _loaded.items() if id(module) in wanted}


def adopt(name: bytes, object_code: bytes, target: Target) -> CompiledModule:
    """Make object code from elsewhere what ``compiled`` finds under a name, for as long as the caller holds it."""
    with _lock:
        found = _loaded.get(name)
        if found is None:
            found = _loaded[name] = load_object(object_code, target)
        return found


def compiled_joined(kernels: Sequence[LateText], target: Target) -> CompiledModule:
    """Return the machine code of several kernels in one module, written only if it is nowhere to be found."""

    def write() -> CompiledModule:
        return compile_module(module_text([f for late in kernels for f in late.generate(late.name)]), target)

    names = "\n".join(late.name for late in kernels)
    return _found_or_made(digest(f"joined\n{names}", target), target, write)


def _found_or_made(name: bytes, target: Target, make: Callable[[], CompiledModule]) -> CompiledModule:
    with _lock:
        found = _loaded.get(name)
        if found is not None:
            return found
        cache, key = ArtefactCache(), CacheKey("cpu-object", name)
        stored = cache.get(key)
        if stored is not None:
            module = load_object(stored, target)
        else:
            module = make()
            cache.put(key, module.object_code)
        _loaded[name] = module
        return module
