"""Rejection: a refusal that carries its reason. Whatever may say no returns one instead of ``False`` or ``None``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.frozen import frozen

if TYPE_CHECKING:
    from ort_core.ir.nodes import Node


@frozen
class Rejection:
    """Why something was not done, and for which node (``None`` when it concerns no single node).

    A rejection is falsy, so ``if not found:`` reads well.
    """

    reason: str
    node: Node | None = None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason
