"""Machine code that comes with the package: of modules that many models or all machines of a level need.

A wheel has it in ``cpu/shipped``, one sealed file for each level; ``tools/ship_kernels.py`` writes them. In a file a
module is found by the digest of its text; one whose text need not be written (``DeferredKernel``, the tiles of
products) by a name that covers what the text is made of. A source tree has no files, and one that is missing or damaged
is no fault: its modules are compiled, as any others.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Mapping
from types import MappingProxyType

from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import Rejection
from ort_core.plugin.cache import digest_of, seal, unseal

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "shipped")
_MARK = b"ort-core shipped code 2\n"
_NOTHING: Mapping[str, memoryview] = MappingProxyType({})

log = logging.getLogger(__name__)


def text_name(text: str, *, is_vectorized: bool) -> str:
    """Return the name of a module in the file of a level, whatever the version of the compiler."""
    return digest_of([b"vectorized" if is_vectorized else b"", text.encode()]).hex()


def file_name(level: Target) -> str:
    """Return the name of the file that holds the modules of a level."""
    return digest_of([level.key.encode()]).hex() + ".bin"


def shipped_file(level: Target, modules: Mapping[str, bytes]) -> bytes:
    """Return the content of the file of a level: object code by name."""
    named = sorted(modules.items())
    head = json.dumps({"level": level.key, "nbytes": {name: len(code) for name, code in named}})
    return seal(_MARK, head, [code for _, code in named])


def shipped_modules(level: Target) -> Mapping[str, memoryview]:
    """Return the object code that came with the package for a level, by name."""
    return _modules(os.path.join(FOLDER, file_name(level)), level.key)


@functools.lru_cache(maxsize=1)  # a process has one level
def _modules(path: str, level: str) -> Mapping[str, memoryview]:
    try:
        with open(path, "rb") as file:
            blob = file.read()
    except OSError as error:
        log.debug("no modules came compiled: %s", error)
        return _NOTHING
    found = _unsealed(blob, level)
    if isinstance(found, Rejection):
        log.warning("%s is not used, its modules are compiled instead; reinstall ort-core: %s", path, found.reason)
        return _NOTHING
    return found


def _unsealed(blob: bytes, level: str) -> Mapping[str, memoryview] | Rejection:
    found = unseal(_MARK, blob)
    if isinstance(found, Rejection):
        return found
    head = json.loads(found.head)
    if head["level"] != level:
        return Rejection("it was written for another level of processors")
    modules, at = {}, 0
    for name, nbytes in head["nbytes"].items():
        modules[name] = found.content[at : at + nbytes]
        at += nbytes
    return modules
