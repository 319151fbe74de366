"""Compiled modules by content: in this process by reference, between processes in the artefact cache.

Modules that many models or all machines need may come compiled with the package (``shipped_code``).

LLVM is imported by whoever has to compile something.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule, compiling
from ort_core.cpu.codegen.machine_code.host_key import host_key
from ort_core.cpu.codegen.machine_code.levels import level_of
from ort_core.cpu.codegen.machine_code.object_loading import BadObject, load_object
from ort_core.plugin import Rejection, frozen
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
_names: weakref.WeakKeyDictionary[CompiledModule, bytes] = weakref.WeakKeyDictionary()
"""The names in ``_loaded``, by module: nodes ask for theirs, and the process may hold thousands."""


@frozen
class ModuleSource:
    """A module that is written only if neither this process nor the cache has its machine code.

    Attributes:
        name: identifies the text and what it is compiled for.
        write: returns the text.
        is_vectorized: few passes do to compile it (``jit.ModuleText``).
        is_common: every machine of a level needs it: it is compiled for the level.
        shipped_as: returns the name under which it may come with the package; ``None``: it does not.
    """

    name: bytes
    write: Callable[[], str]
    is_vectorized: bool = False
    is_common: bool = False
    shipped_as: Callable[[], str] | None = None


def text_source(text: str, target: Target, *, is_vectorized: bool = False, is_common: bool = False) -> ModuleSource:
    """Return a module whose text is there."""
    key = (level_of(target) or target).key if is_common else target.key
    name = _digest(f"vectorized\n{text}" if is_vectorized else text, key)
    return ModuleSource(name, lambda: text, is_vectorized, is_common, lambda: _text_name(text, is_vectorized))


def deferred_source(deferred: DeferredKernel, target: Target) -> ModuleSource:
    """Return the module of a kernel that is written when it is needed."""
    name = _digest(deferred.name, target.key)
    return ModuleSource(
        name, lambda: _text(deferred.generate(deferred.name)), deferred.is_vectorized, shipped_as=lambda: deferred.name
    )


def joined_source(kernels: Sequence[DeferredKernel], target: Target) -> ModuleSource:
    """Return one module of several kernels; all of them are vectorized, or none is."""
    names = "\n".join(deferred.name for deferred in kernels)
    return ModuleSource(
        _digest(f"joined\n{names}", target.key),
        lambda: _text([function for deferred in kernels for function in deferred.generate(deferred.name)]),
        all(deferred.is_vectorized for deferred in kernels),
    )


def compiled(text: str, target: Target, *, is_vectorized: bool = False, is_common: bool = False) -> CompiledModule:
    """Return the machine code of a module: from this process, from the cache, from the package, or compiled now."""
    source = text_source(text, target, is_vectorized=is_vectorized, is_common=is_common)
    (module,) = compiled_together([source], target)
    return module


def compiled_for_target(
    prefix: str, write: Callable[[Target], str], target: Target, *, is_common: bool = False
) -> CompiledModule:
    """Return the machine code of a vectorized module, as ``compiled``; generators and target determine its text."""
    from ort_core.cpu.codegen.llvm_ir.deferred_kernel import name_of_facts

    named = name_of_facts(prefix, "", is_vectorized=True)
    key = (level_of(target) or target).key if is_common else target.key
    source = ModuleSource(_digest(named, key), lambda: write(target), True, is_common, lambda: named)
    (module,) = compiled_together([source], target)
    return module


def compiled_for_host(facts: str, write: Callable[[], str]) -> CompiledModule:
    """Return the machine code of a common module for this host; ``facts`` and this package determine its text."""
    name, known = _host_name(facts), _for_host.get(facts)
    if known is not None and _names.get(known) == name:
        return noted(known)
    written = functools.cache(write)
    source = ModuleSource(name, written, is_common=True, shipped_as=lambda: _text_name(written(), False))
    (found,) = compiled_together([source], None)
    _for_host[facts] = found
    return found


def compiled_together(
    sources: Sequence[ModuleSource], target: Target | None, *, num_threads: int = 1
) -> list[CompiledModule]:
    """Return the machine code of modules, as ``compiled`` does; those that nobody has are compiled side by side.

    Args:
        sources: what to compile.
        target: what the code is for; the host where it is ``None``.
        num_threads: how many are compiled at once.
    """
    with compiling:
        found = {source.name: _loaded.get(source.name) for source in sources}
    if None in found.values():
        found = _found_or_made(sources, target, num_threads)
    modules = {name: module for name, module in found.items() if module is not None}
    with compiling:
        for each in _recording:
            each.update(modules)
    return [modules[source.name] for source in sources]


def _found_or_made(
    sources: Sequence[ModuleSource], target: Target | None, num_threads: int
) -> dict[bytes, CompiledModule | None]:
    cache = ArtefactCache()
    with compiling:
        found = {source.name: _loaded.get(source.name) or _stored(cache, source.name, target) for source in sources}
        missing = list({source.name: source for source in sources if found[source.name] is None}.values())
        if missing:
            for source, module, is_kept in _made(missing, target, num_threads):
                found[source.name] = module
                if is_kept:
                    cache.put(_key(source.name), module.object_code)
        for name, known in found.items():
            if known is not None:
                _keep_loaded(name, known)
    return found


def _keep_loaded(name: bytes, module: CompiledModule) -> None:
    _loaded[name] = module
    _names[module] = name


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
        with compiling:
            name = _names.get(module) or digest_of([module.object_code])
            for each in _recording:
                each[name] = module
    return module


def names_of(modules: Iterable[CompiledModule]) -> dict[bytes, CompiledModule]:
    """Return modules by what identifies their text and target; one that did not come from here by its object code."""
    with compiling:
        return {_names.get(each) or digest_of([each.object_code]): each for each in modules}


def adopt(name: bytes, object_code: bytes) -> CompiledModule:
    """Make object code for this host what ``compiled`` finds under a name, for as long as the caller holds it."""
    with compiling:
        found = _loaded.get(name)
        if found is None:
            found = load_object(object_code)
            _keep_loaded(name, found)
        return found


def _made(
    sources: Sequence[ModuleSource], target: Target | None, num_threads: int
) -> Iterator[tuple[ModuleSource, CompiledModule, bool]]:
    """Give each module with its code: what came with the package first, then what is compiled, side by side.

    The third is whether it is worth a place in the cache: what recalled loads need is, wherever it came from.
    """
    from ort_core.cpu.codegen.machine_code.known_host import known_host

    machine = target or known_host()
    shipped = shipped_for(machine)
    missing = []
    for source in sources:
        code = shipped.get(source.shipped_as()) if shipped and source.shipped_as is not None else None
        if code is None:
            missing.append(source)
        else:
            yield source, load_object(bytes(code), target), source.is_common
    for is_common, machines in ((True, level_of(machine) or target), (False, target)):
        chosen = [source for source in missing if source.is_common is is_common]
        if chosen:
            yield from zip(chosen, _compiled(chosen, machines, num_threads), [True] * len(chosen), strict=True)


def shipped_for(target: Target) -> Mapping[str, memoryview]:
    """Return the object code that came with the package for a machine, by name."""
    from ort_core.cpu.codegen.machine_code.shipped_code import shipped_modules  # recalled loads have no use for it

    level = level_of(target)
    return {} if level is None else shipped_modules(level)


def _text_name(text: str, is_vectorized: bool) -> str:
    from ort_core.cpu.codegen.machine_code.shipped_code import text_name  # as above

    return text_name(text, is_vectorized=is_vectorized)


def _compiled(sources: Sequence[ModuleSource], target: Target | None, num_threads: int) -> list[CompiledModule]:
    from ort_core.cpu.codegen.machine_code.compiling_elsewhere import object_codes_elsewhere  # as above
    from ort_core.cpu.codegen.machine_code.known_host import known_host
    from ort_core.cpu.codegen.machine_code.module_text import ModuleText

    say_that_it_compiles()

    def texts() -> Iterator[ModuleText]:
        return (ModuleText(source.write(), source.is_vectorized) for source in sources)

    codes = object_codes_elsewhere(texts(), target or known_host(), num_threads)
    if not isinstance(codes, Rejection):
        return [load_object(code, target) for code in codes]
    log.debug("this process compiles: %s", codes)
    from ort_core.cpu.codegen.machine_code import jit  # imports llvmlite

    return jit.compile_modules(texts(), target, num_threads=num_threads)


def _text(functions: Sequence[Emitter]) -> str:
    from ort_core.cpu.codegen.llvm_ir.emitter import module_text

    return module_text(functions)


def _host_name(facts: str) -> bytes:
    return _digest(f"{package_facts()}|{facts}", host_key())


def _digest(text: str, key: str) -> bytes:
    """Return what identifies the compiled form of a module."""
    return digest_of([key.encode(), text.encode()])


def _key(name: bytes) -> CacheKey:
    return CacheKey("cpu-object", name)


def _stored(cache: ArtefactCache, name: bytes, target: Target | None) -> CompiledModule | None:
    stored = cache.get(_key(name))
    if stored is None:
        return None
    try:
        return load_object(stored, target)
    except (BadObject, RuntimeError) as error:  # RuntimeError: from LLVM
        log.warning("machine code in the cache cannot be loaded and is compiled again: %s", error)
        cache.remove(_key(name))
        return None
