"""The machine code of a partition as bytes: what ``CpuPartition.serialize`` gives and its provider's ``load`` takes.

A module is named by the digest of its text and target, so lowering the same graph for the same target asks for the same
names: what it does not find is compiled. Code that does not depend on the graph (the threads' and that of direct calls)
goes with it, so that a process without a compiler needs none. The bytes are sealed: the text before the object files is
JSON, with the target, the digest of this package's files, names and lengths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ort_core.cpu.codegen.machine_code.code_cache import adopt, adopt_for_host, modules_for_host
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.object_loading import BadObject
from ort_core.cpu.codegen.machine_code.target import Target, target_of
from ort_core.plugin import Rejection, frozen
from ort_core.plugin.cache import Unsealed, package_digest, seal, unseal

_MARK = b"ort-core-cpu-code-3\n"


@frozen
class StoredCode:
    """What bytes hold: the target, and modules, which the compiler finds for as long as they are held."""

    target: Target
    modules: tuple[CompiledModule, ...]


def encode_modules(modules: Mapping[bytes, CompiledModule], target: Target) -> bytes:
    """Return the object files of modules, by name, and of what every program for this host needs."""
    named = sorted(modules.items())
    common = sorted(modules_for_host().items())
    head = {
        "target": [target.triple, target.cpu, target.features, target.compiler],
        "package": package_digest(),
        "modules": [[name.hex(), len(module.object_code)] for name, module in named],
        "common": [[facts, len(module.object_code)] for facts, module in common],
    }
    return seal(_MARK, json.dumps(head), [module.object_code for _, module in (*named, *common)])


def adopted(blob: bytes) -> StoredCode | Rejection:
    """Make stored modules known to the compiler for as long as the result is held, or say why the bytes are wrong."""
    stored = unseal(_MARK, blob)
    if isinstance(stored, Rejection):
        return stored
    try:
        return _adopted(stored)
    except (ValueError, KeyError, TypeError, IndexError) as error:  # BadObject among them
        return Rejection(f"the machine code cannot be read: {error}")


def _adopted(stored: Unsealed) -> StoredCode | Rejection:
    head, content = json.loads(stored.head), stored.content
    if head["package"] != package_digest():
        return Rejection("it was made by other files of ort-core than these, though of the same version")
    at = 0
    modules: list[CompiledModule] = []
    for names, take in (
        (head["modules"], lambda name, code: adopt(bytes.fromhex(name), code)),
        (head["common"], adopt_for_host),
    ):
        for name, nbytes in names:
            if not 0 <= at <= at + nbytes <= len(content):
                raise BadObject("an object file is cut")
            modules.append(take(name, bytes(content[at : at + nbytes])))
            at += nbytes
    return StoredCode(target_of(*map(str, head["target"])), tuple(modules))
