"""lower_group(): lower the nodes of a group, and find all that refuse in one walk, not one in each walk.

A group in which nodes refuse is cut there and lowered again. Until the walk's end, what reads the result of such a
node takes it for an input, as it will behind the cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import UNCOUNTABLE, NotLowered, too_large
from ort_core.plugin import OrtError
from ort_core.plugin.ir import Node

log = logging.getLogger(__name__)


def lower_group(lowering: Lowering, group: Sequence[Node], lower_node: Callable[[Node], None]) -> dict[Node, str]:
    """Lower all nodes in order and store the group's outputs; return the nodes that refuse, with reasons.

    The lowering is finished if there are none, and of no use else. ``lowering.node`` is the node that was lowered
    when something other than a refusal is raised, ``None`` behind the last one.
    """
    walk = _Walk(lowering, group)
    try:
        for node in group:
            lowering.node = node
            walk.attempt(node, lambda node=node: lower_node(node))  # type: ignore[misc]  # mypy: default of a lambda
        lowering.node = None
        if not walk.refusals:
            walk.attempt(group[-1], lowering.finish)
        if walk.refusals:
            for value in lowering.outputs:
                walk.attempt(value.producer or group[-1], lambda value=value: lowering.view(value))  # type: ignore[misc]  # as above
    except (OrtError, MemoryError):
        raise
    except Exception as error:
        if not walk.refusals:
            raise
        log.debug("what follows a refusal is lowered when the group is cut: %s", error)
    return walk.refusals


class _Walk:
    def __init__(self, lowering: Lowering, group: Sequence[Node]) -> None:
        self._lowering, self._members = lowering, frozenset(group)
        self.refusals: dict[Node, str] = {}

    def attempt(self, node: Node, lower: Callable[[], object]) -> None:
        """Do what lowers a node, again after each refusal that names another one."""
        while True:
            try:
                lower()
                return
            except (NotLowered, *UNCOUNTABLE) as error:  # kept in no variable: it would keep this frame, and all below
                named = error.node if isinstance(error, NotLowered) else None
                reason = str(error if isinstance(error, NotLowered) else too_large(error))
                is_other = named is not None and named in self._members and named not in self.refusals
                blamed = named if is_other and named is not None else node
                self.refusals.setdefault(blamed, reason)
                self._lowering.forget(node)
                self._lowering.forget(blamed)
                if blamed is node:
                    return
