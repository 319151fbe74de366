"""Compiled modules by content: in this process by reference, between processes in the artefact cache."""

from __future__ import annotations

import threading
import weakref

from ort_core.cpu.codegen.jit import CompiledModule, Target, compile_module, digest, load_object
from ort_core.plugin.cache import ArtefactCache, CacheKey

_loaded: weakref.WeakValueDictionary[bytes, CompiledModule] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def compiled(text: str, target: Target) -> CompiledModule:
    """Return the machine code of a module: from this process, from the cache, or compiled now."""
    name = digest(text, target)
    with _lock:
        found = _loaded.get(name)
        if found is not None:
            return found
        cache, key = ArtefactCache(), CacheKey("cpu-object", name)
        stored = cache.get(key)
        if stored is not None:
            module = load_object(stored, target)
        else:
            module = compile_module(text, target)
            cache.put(key, module.object_code)
        _loaded[name] = module
        return module
