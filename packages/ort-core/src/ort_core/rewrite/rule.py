"""RewriteRule: one small change, stated as what to look for, when it may be done, and what to put there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.rewrite.matcher import Match, find_match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, leading_op_types, needed_op_types

Bindings = TypeVar("Bindings")


class RewriteRule(ABC, Generic[Bindings]):
    """A rule in three steps; ``Bindings`` is what ``check`` finds out and ``rewrite`` uses.

    A rule keeps nothing between calls, so one object serves all threads. ``emits`` lists the operators as
    (domain, op_type) that the rewrite introduces: a pass leaves the rule out where its target has none of them.
    """

    name: ClassVar[str]
    emits: ClassVar[tuple[tuple[str, str], ...]] = ()

    @abstractmethod
    def build_pattern(self) -> Pattern:
        """Return what to look for; asked once."""

    @abstractmethod
    def check(self, match: Match) -> Bindings | Rejection:
        """Return what the rewrite needs to know, or why it may not be done here."""

    @abstractmethod
    def rewrite(self, match: Match, bindings: Bindings) -> GraphPatch:
        """Return the edit; nothing in the graph is changed yet."""

    @cached_property
    def pattern(self) -> Pattern:
        """What to look for."""
        return self.build_pattern()

    @cached_property
    def op_types(self) -> frozenset[str]:
        """The operators at which a match can start."""
        return leading_op_types(self.pattern)

    @cached_property
    def needed_op_types(self) -> frozenset[frozenset[str]]:
        """Sets of operators of which a model must have one each, or no match is to be looked for."""
        return needed_op_types(self.pattern)

    def apply_at(self, model: Model, node: Node) -> int | Rejection:
        """Match, check and rewrite at one node.

        Returns:
            1 if the graph was changed, 0 if the pattern does not fit, or why the rewrite was refused.
        """
        match = find_match(model, self.pattern, node)
        if match is None:
            return 0
        bindings = self.check(match)
        if isinstance(bindings, Rejection):
            return bindings
        objection = self.rewrite(match, bindings).apply()
        return 1 if objection is None else objection


def replace_by(match: Match, value_name: str) -> GraphPatch:
    """Return the patch of an elimination: the output becomes the value bound to ``value_name``."""
    patch = GraphPatch(match.model, match.root)
    patch.replace(match.output, match[value_name])
    patch.remove(*match.nodes)
    return patch
