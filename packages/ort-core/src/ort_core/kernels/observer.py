"""Observer: is told of each node that ran, by evaluators and by compiled partitions alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ort_core.ir.nodes import Node
from ort_core.kernels.region_work import RegionWork
from ort_core.tensors.runtime_value import RuntimeValue


class Observer(Protocol):
    """Is called behind each node that ran: profilers, extraction of a node with its inputs."""

    def __call__(
        self,
        node: Node,
        start_ns: int,
        inputs: Sequence[RuntimeValue],
        outputs: Sequence[RuntimeValue],
        work: RegionWork | None = None,
        /,
    ) -> None:
        """Take note of a node, when it began, and what it read and wrote.

        ``work`` is given by compiled regions, whose node stands for all that they fuse.
        """
