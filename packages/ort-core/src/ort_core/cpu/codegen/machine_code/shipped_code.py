"""Machine code that comes with the package: of modules that every machine of a level needs.

A wheel has it in ``cpu/shipped``, one sealed file for each module and level, named by the digest of its text and of the
level; ``tools/ship_kernels.py`` writes them. A source tree has none, and a file that is missing, damaged or of another
text is no fault: the module is compiled, as any other.
"""

from __future__ import annotations

import logging
import os

from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import Rejection
from ort_core.plugin.cache import digest_of, seal, unseal

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "shipped")
_MARK = b"ort-core shipped code 1\n"

log = logging.getLogger(__name__)


def shipped_name(text: str, level: Target, *, is_vectorized: bool) -> str:
    """Return the name of the file that holds a module compiled for a level, by any version of the compiler."""
    return digest_of([level.key.encode(), b"vectorized" if is_vectorized else b"", text.encode()]).hex() + ".bin"


def shipped_file(name: str, object_code: bytes) -> bytes:
    """Return the content of a file of that name."""
    return seal(_MARK, name, [object_code])


def find_shipped(text: str, level: Target, *, is_vectorized: bool) -> bytes | None:
    """Return the object code of a module for a level, if it came with the package."""
    name = shipped_name(text, level, is_vectorized=is_vectorized)
    try:
        with open(os.path.join(FOLDER, name), "rb") as file:
            blob = file.read()
    except OSError as error:
        log.debug("a module for %s did not come compiled: %s", level.cpu, error)
        return None
    found = unseal(_MARK, blob)
    if isinstance(found, Rejection) or found.head != name:
        reason = found.reason if isinstance(found, Rejection) else "it was written for another module"
        log.warning("%s is not used, its module is compiled instead; reinstall ort-core: %s", name, reason)
        return None
    return bytes(found.content)
