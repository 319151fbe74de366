"""Near misses: rewrites that nearly fired on a model, and why they did not; found on request, after the passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.passes.base import Pass, PassContext, RulePass
from ort_core.rewrite.matcher import find_match
from ort_core.rewrite.near_match import find_near_match
from ort_core.rewrite.rule import RewriteRule


@frozen
class NearMiss:
    """A rewrite that did not fire: of which pass and rule, at which node, why.

    ``fits`` says whether the whole pattern was there and the rule refused; else one part of the pattern was missing.
    ``partition`` is where the pass ran; empty for passes over the whole model.
    """

    pass_name: str
    rule: str
    node: str
    reason: str
    fits: bool
    partition: str = ""


def find_near_misses(passes: Sequence[Pass], context: PassContext, partition: str = "") -> list[NearMiss]:
    """Return what nearly fired on a context's model as it is now, after the passes. Nothing is changed."""
    return [
        NearMiss(each.name, rule.name, node.describe(), found.reason, fits, partition)
        for each in passes
        if isinstance(each, RulePass)
        for rule in each.rules
        for node, found, fits in _of_rule(rule, context)
    ]


def counted(misses: Iterable[NearMiss]) -> list[tuple[NearMiss, int]]:
    """Return one near miss for each pass, rule and reason, with how many there are; the most frequent first."""
    first: dict[tuple[str, str, str], NearMiss] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in misses:
        key = (each.pass_name, each.rule, each.reason)
        first.setdefault(key, each)
        counts[key] += 1
    return [(first[key], count) for key, count in counts.most_common()]


def _of_rule(rule: RewriteRule[Any], context: PassContext) -> Iterator[tuple[Node, Rejection, bool]]:  # Any: bindings
    if not all(context.supports(domain, op_type) for domain, op_type in rule.emits):
        return
    for graph in context.graphs():
        for node in graph.nodes:
            if node.op_type not in rule.op_types:
                continue
            refused = _refusal(rule, context, node)
            if refused is not None:
                yield node, refused, True
                continue
            near = find_near_match(context.model, rule.pattern, node)
            if near is not None:
                yield node, near, False


def _refusal(rule: RewriteRule[Any], context: PassContext, node: Node) -> Rejection | None:  # Any: as above
    match = find_match(context.model, rule.pattern, node)
    if match is None:
        return None
    bindings = rule.check(match)
    if isinstance(bindings, Rejection):
        return bindings
    patch = rule.rewrite(match, bindings)
    try:
        objection = patch.find_objection()  # a rejection is falsy
        return Rejection("it fits: more rounds of passes would apply it", node) if objection is None else objection
    finally:
        patch.discard()
