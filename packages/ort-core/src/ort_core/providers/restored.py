"""RestoredPartition: what a provider made out of the bytes that it had stored in a model."""

from __future__ import annotations

from ort_core.frozen import frozen
from ort_core.providers.compiled import CompiledPartition
from ort_core.providers.provider import ExecutionProvider


@frozen
class RestoredPartition:
    """A compiled partition that stands in a model as one node.

    The first ``input_count`` inputs of the node are the partition's; the rest are constants that it holds already.
    """

    provider: ExecutionProvider
    compiled: CompiledPartition
    input_count: int
