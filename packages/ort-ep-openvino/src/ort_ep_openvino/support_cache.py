"""The cache of support: what OpenVINO said of programs, so that none is asked about twice, in later processes neither.

To ask costs some 20 milliseconds for a few nodes and as much as compiling for many. Bodies of control flow are offered
again each time their node is; and a model that is loaded again has the same groups.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from ort_core.plugin.cache import ArtefactCache, CacheKey
from ort_ep_openvino import __version__
from ort_ep_openvino.lowering.ports import Ports
from ort_ep_openvino.lowering.program import Program

MIN_STORED_NODES = 4  # programs of fewer are asked about anew in each process: a file for each would be no gain


@dataclass(frozen=True, slots=True)
class Refused:
    """Why OpenVINO does not take a group, and the names of the nodes or values that it speaks of."""

    reason: str
    names: frozenset[str]


SupportAnswer = Ports | Refused
"""How the ports of a program's model stand to it, or why it is not taken."""


class SupportCacheState:
    """Answers of one device and version of OpenVINO, by program. Safe from threads.

    Args:
        device: OpenVINO's version, and the device with its driver.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._known: dict[bytes, SupportAnswer] = {}  # single reads and writes of a dict are atomic

    def find(self, program: Program, num_nodes: int) -> SupportAnswer | None:
        """Return what was said of a program of so many nodes, ``None`` when it was not asked about."""
        structure = _structure(program)
        known = self._known.get(structure)
        if known is not None or num_nodes < MIN_STORED_NODES:
            return known
        stored = ArtefactCache().get(self._key(structure))
        if stored is None:
            return None
        return self._known.setdefault(structure, _opened(stored))

    def keep(self, program: Program, num_nodes: int, answer: SupportAnswer) -> None:
        """Keep what was said of a program of so many nodes."""
        structure = _structure(program)
        self._known[structure] = answer
        if num_nodes >= MIN_STORED_NODES:
            ArtefactCache().put(self._key(structure), _sealed(answer))

    def _key(self, structure: bytes) -> CacheKey:
        return CacheKey("openvino-support", structure, (), (("device", self._device), ("package", __version__)))


def _structure(program: Program) -> bytes:
    """Return a digest of a program without the numbers in its large weights, by which no device refuses it."""
    return hashlib.sha256(b"\0".join((*_encoded(program.constants), b"", program.content))).digest()


def _encoded(names: Iterable[str]) -> list[bytes]:
    return [name.encode() for name in names]


def _sealed(answer: SupportAnswer) -> bytes:
    if isinstance(answer, Ports):
        return b"taken\n" + answer.sealed_with(b"")
    return b"refused\n" + json.dumps([answer.reason, sorted(answer.names)]).encode()


def _opened(stored: bytes) -> SupportAnswer:
    kind, _, content = stored.partition(b"\n")
    if kind == b"taken":
        return Ports.opened(content)[0]
    reason, names = json.loads(content)
    return Refused(reason, frozenset(names))
