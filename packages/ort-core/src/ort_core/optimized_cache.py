"""The optimized model in the artefact cache: found again by structure and by the weights that optimizing had read.

Two entries for each model. The first is found by the structure alone and lists which weights the passes read when the
model was optimized. The second is found by the structure and the digests of those weights, and holds the optimized
graph. Weights that nobody read decided nothing: they are neither digested nor kept, the graph refers to them.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Sequence

from ort_core import __version__
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.cache.versions import package_facts
from ort_core.errors import OrtError
from ort_core.ir.constants import Constant
from ort_core.ir.model import Model
from ort_core.ir.structure import MAX_CONTENT_NBYTES, ModelStructure, replace_constants
from ort_core.side_threads import side_threads

log = logging.getLogger(__name__)

Facts = tuple[tuple[str, str], ...]

MIN_NODES = 64  # a graph below is optimized in a few milliseconds, as long as a look into the cache takes
MIN_DURATION_S = 0.03  # of optimizing; loading an entry costs about 10 ms for 500 nodes
_DIGEST_NBYTES_PER_S = 1e9  # SHA-256 on one core of 2020; every hit digests what was read and what is kept
_KIND, _READS_KIND = "optimized-model", "optimized-model-reads"


class OptimizedModelCache:
    """The cache as it serves one model. Make it before the model is optimized: it watches which weights are read.

    Args:
        model: an editable, loaded model; from now on its weights are watched.
        facts: what decides the result besides the model: passes, levels, versions.
        cache: where entries lie; by default the user's cache.

    Raises:
        OrtError: a small constant cannot be read.
    """

    def __init__(self, model: Model, facts: Facts, cache: ArtefactCache | None = None) -> None:
        self._cache = cache if cache is not None else ArtefactCache()
        self._facts = (*facts, *code_facts())
        structure = ModelStructure(model)
        self._structure = structure.digest
        self._originals = structure.constants
        self._watched = [_watched(constant) for constant in self._originals]
        pairs = zip(self._originals, self._watched, strict=True)
        replace_constants(model, {id(original): watched for original, watched in pairs})
        self._model = model

    def find(self) -> Model | None:
        """Return the optimized model, or ``None`` when it is not there. Its weights are those of the loaded model."""
        reads = self._find_reads()
        content = None if reads is None else self._find_content(reads)
        if content is None:
            return None
        from ort_core.onnx_io.artefact import decode_optimized  # imports onnx, which a loaded model has paid for

        try:
            return decode_optimized(content, self._model, self._originals)
        except (OrtError, ValueError, KeyError, TypeError, IndexError) as error:
            log.warning("an optimized model in the cache does not load and is made anew: %s", error)
            return None

    def keep(self, model: Model, duration_s: float) -> bool:
        """Keep an optimized model that took ``duration_s`` to make, if that pays; returns whether it was kept."""
        if duration_s < MIN_DURATION_S:
            return False
        from ort_core.onnx_io.artefact import encode_optimized  # as in find

        try:
            parts = encode_optimized(model, self._watched)
            reads = [i for i, watched in enumerate(self._watched) if self._is_watched(i) and watched.is_loaded]
            digested_nbytes = sum(len(part) for part in parts) + sum(self._originals[i].nbytes for i in reads)
            if digested_nbytes / _DIGEST_NBYTES_PER_S > duration_s:
                log.debug("optimized model not kept: to check %d bytes takes longer", digested_nbytes)
                return False
            key = self._key(reads)
        except (OrtError, ValueError) as error:
            log.info("optimized model not kept: %s", error)
            return False
        return self._cache.put(key, *parts) and self._cache.put(self._reads_key(), json.dumps(reads).encode())

    def _is_watched(self, number: int) -> bool:
        return self._watched[number] is not self._originals[number]

    def _find_reads(self) -> list[int] | None:
        content = self._cache.get(self._reads_key())
        try:
            reads = None if content is None else json.loads(content)
        except ValueError:
            return None
        count = len(self._originals)
        is_valid = isinstance(reads, list) and all(isinstance(i, int) and 0 <= i < count for i in reads)
        return reads if is_valid else None

    def _find_content(self, reads: Sequence[int]) -> memoryview | None:
        try:
            return self._cache.map(self._key(reads))
        except OrtError:  # a weight cannot be read: optimizing says so with the node that needs it
            return None

    def _reads_key(self) -> CacheKey:
        return CacheKey(_READS_KIND, self._structure, (), self._facts)

    def _key(self, reads: Sequence[int]) -> CacheKey:
        digests = _digests([self._originals[i] for i in reads])
        weights = tuple(i.to_bytes(8, "little") + digest for i, digest in zip(reads, digests, strict=True))
        return CacheKey(_KIND, self._structure, weights, self._facts)


@functools.cache
def code_facts() -> Facts:
    """Return the versions that decide what optimizing gives, and a stamp of this package's own files."""
    from ort_core.onnx_io.schemas import onnx_version  # as in OptimizedModelCache.find

    return (("ort-core", __version__), *package_facts(), ("onnx", onnx_version()))


def _digests(constants: Sequence[Constant]) -> list[bytes]:
    """Digest constants, large ones at the same time (hashing lets go of the interpreter's lock)."""
    if sum(constant.nbytes for constant in constants) < 1 << 22 or len(constants) < 2:
        return [constant.digest() for constant in constants]
    with side_threads(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(Constant.digest, constants))


def _watched(constant: Constant) -> Constant:
    """Return a constant that reads from another and so shows, by being loaded, that somebody has looked at it."""
    if constant.nbytes <= MAX_CONTENT_NBYTES:
        return constant  # its contents are part of the structure
    return Constant(constant.dtype, constant.shape, constant.array, constant.location, constant.offset)
