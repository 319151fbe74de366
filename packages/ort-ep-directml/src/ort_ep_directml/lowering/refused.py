"""Refused: what a rule raises where a node cannot become operators of DirectML, and why."""

from __future__ import annotations


class Refused(Exception):
    """A node is not lowered.

    Args:
        reason: one sentence.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
