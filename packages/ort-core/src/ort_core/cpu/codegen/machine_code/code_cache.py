"""Compiled modules by content: in this process by reference, between processes in the artefact cache.

LLVM is imported by whoever has to compile something.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule, compiling
from ort_core.cpu.codegen.machine_code.host_key import host_key
from ort_core.cpu.codegen.machine_code.object_loading import BadObject, load_object
from ort_core.plugin.cache import ArtefactCache, CacheKey, digest_of, package_facts, say_that_it_compiles

if TYPE_CHECKING:
    from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel
    from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
    from ort_core.cpu.codegen.machine_code.target import Target

log = logging.getLogger(__name__)

_for_host: dict[str, CompiledModule] = {}
"""What ``compiled_for_host`` gave, by its facts: few, and those who use it keep it for ever."""
_recording: list[dict[bytes, CompiledModule]] = []

_loaded: weakref.WeakValueDictionary[bytes, CompiledModule] = weakref.WeakValueDictionary()


def compiled(text: str, target: Target) -> CompiledModule:
    """Return the machine code of a module: from this process, from the cache, or compiled now."""
    return _found_or_made(_digest(text, target.key), target, lambda: _compiled(text, target))


def compiled_for_host(facts: str, write: Callable[[], str]) -> CompiledModule:
    """Return the machine code of a module for this host; ``facts`` and this package's files determine its text."""

    def make() -> CompiledModule:
        from ort_core.cpu.codegen.machine_code.llvm_targets import host_target

        return _compiled(write(), host_target())

    found = _for_host[facts] = _found_or_made(_host_name(facts), None, make)
    return found


def modules_for_host() -> dict[str, CompiledModule]:
    """Return what ``compiled_for_host`` has given in this process, by its facts."""
    return dict(_for_host)


def adopt_for_host(facts: str, object_code: bytes) -> CompiledModule:
    """Make object code of these very package files what ``compiled_for_host`` finds, as ``adopt``."""
    return adopt(_host_name(facts), object_code)


@contextlib.contextmanager
def recorded() -> Iterator[dict[bytes, CompiledModule]]:
    """Note all modules that are found or made meanwhile, on whichever thread, by name."""
    found: dict[bytes, CompiledModule] = {}
    with compiling:
        _recording.append(found)
    try:
        yield found
    finally:
        with compiling:
            _recording[:] = [each for each in _recording if each is not found]


def noted(module: CompiledModule) -> CompiledModule:
    """Note a module that its user kept from an earlier call among those that are found now; returns it."""
    if _recording:
        found = names_of([module])
        with compiling:
            for each in _recording:
                each.update(found)
    return module


def compiled_deferred(deferred: DeferredKernel, target: Target) -> CompiledModule:
    """Return the machine code of a module that is written only if neither this process nor the cache has it."""

    def write() -> CompiledModule:
        return _compiled(_text(deferred.generate(deferred.name)), target, is_vectorized=deferred.is_vectorized)

    return _found_or_made(_digest(deferred.name, target.key), target, write)


def names_of(modules: Iterable[CompiledModule]) -> dict[bytes, CompiledModule]:
    """Return modules by what identifies their text and target; one that did not come from here by its object code."""
    with compiling:
        names = {id(module): name for name, module in _loaded.items()}
    return {names.get(id(each)) or digest_of([each.object_code]): each for each in modules}


def adopt(name: bytes, object_code: bytes) -> CompiledModule:
    """Make object code for this host what ``compiled`` finds under a name, for as long as the caller holds it."""
    with compiling:
        found = _loaded.get(name)
        if found is None:
            found = _loaded[name] = load_object(object_code)
        return found


def compiled_joined(kernels: Sequence[DeferredKernel], target: Target) -> CompiledModule:
    """Return the machine code of several kernels in one module, written only if it is nowhere to be found."""

    def write() -> CompiledModule:
        return _compiled(_text([f for deferred in kernels for f in deferred.generate(deferred.name)]), target)

    names = "\n".join(deferred.name for deferred in kernels)
    return _found_or_made(_digest(f"joined\n{names}", target.key), target, write)


def _compiled(text: str, target: Target, *, is_vectorized: bool = False) -> CompiledModule:
    from ort_core.cpu.codegen.machine_code import jit

    return jit.compile_module(text, target, is_vectorized=is_vectorized)


def _text(functions: Sequence[Emitter]) -> str:
    from ort_core.cpu.codegen.llvm_ir.emitter import module_text

    return module_text(functions)


def _host_name(facts: str) -> bytes:
    return _digest(f"{package_facts()}|{facts}", host_key())


def _digest(text: str, key: str) -> bytes:
    """Return what identifies the compiled form of a module."""
    return digest_of([key.encode(), text.encode()])


def _found_or_made(name: bytes, target: Target | None, make: Callable[[], CompiledModule]) -> CompiledModule:
    with compiling:
        module = _loaded.get(name)
        if module is None:
            cache, key = ArtefactCache(), CacheKey("cpu-object", name)
            module = _stored(cache, key, target)
            if module is None:
                say_that_it_compiles()
                module = make()
                cache.put(key, module.object_code)
            _loaded[name] = module
        for each in _recording:
            each[name] = module
        return module


def _stored(cache: ArtefactCache, key: CacheKey, target: Target | None) -> CompiledModule | None:
    stored = cache.get(key)
    if stored is None:
        return None
    try:
        return load_object(stored, target)
    except (BadObject, RuntimeError) as error:  # RuntimeError: from LLVM
        log.warning("machine code in the cache does not load and is compiled anew: %s", error)
        cache.remove(key)
        return None
