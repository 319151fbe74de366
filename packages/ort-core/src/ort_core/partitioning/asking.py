"""Asking a provider what it claims: the border at which its faults become a reason, and never pass unseen.

What a provider raises is noted with the node at which it does, found by offering it fewer nodes: the session warns of
it, and explain() shows it. With ``ORT_STRICT_COMPILATION`` it raises. A provider that says ``NotImplemented`` has
decided: it tells in its own words what it lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from ort_core.errors import EPFail, NotImplemented
from ort_core.interruptions import raise_interruption
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.partitioning.parts import claims_with_parts
from ort_core.partitioning.taken_apart import has_body
from ort_core.providers.capability import Capability, Claim, GraphView
from ort_core.providers.compile_faults import CompileFaultsState
from ort_core.providers.provider import ExecutionProvider

log = logging.getLogger(__name__)


def ask_for_claims(
    provider: ExecutionProvider,
    view: GraphView,
    is_sound: Callable[[Sequence[Claim]], bool],
    faults: CompileFaultsState,
) -> Capability | Rejection:
    """Return what a provider claims, composites in their parts included, or why it says nothing of the view.

    Args:
        provider: who is asked.
        view: what it is offered.
        is_sound: whether claims on the nodes of the view keep the rules.
        faults: takes what it raises.

    Raises:
        EPFail: it raised, and ``ORT_STRICT_COMPILATION`` is set.
    """
    try:
        plain = list(provider.get_capability(view))
    except NotImplemented as error:  # what it needs to decide is not here, in its own words
        log.debug("%s claimed nothing: %s", provider.name, error)
        return Rejection(str(error))
    except Exception as error:  # noqa: BLE001 - the border to providers: noted, told and a reason
        raise_interruption(error)
        faults.note(f"{provider.name} claims nothing: get_capability failed{_where(provider, view)}", error)
        return Rejection(f"get_capability failed: {type(error).__name__}: {error}")
    if provider.is_last_resort or not provider.takes_parts:
        return plain
    return _with_parts(provider, plain, view, is_sound, faults)


def _with_parts(
    provider: ExecutionProvider,
    plain: Capability,
    view: GraphView,
    is_sound: Callable[[Sequence[Claim]], bool],
    faults: CompileFaultsState,
) -> Capability:
    failed: list[str] = []

    def ask_again(seen: GraphView) -> Capability | None:
        try:
            return list(provider.get_capability(seen))
        except NotImplemented as error:
            log.debug("%s claims nothing in parts: %s", provider.name, error)
        except Exception as error:  # noqa: BLE001 - the border to providers: noted and told; what it said before counts
            raise_interruption(error)
            where = _where(provider, seen)
            faults.note(f"{provider.name} failed when it was asked about the parts of operators{where}", error)
            failed.append(f"asked about its parts, the provider failed{where}: {type(error).__name__}: {error}")
        return None

    try:
        answers = claims_with_parts(plain, ask_again, view, is_sound, folds=provider.folds_parts)
    except EPFail:  # faults are strict
        raise
    except Exception as error:  # noqa: BLE001 - its answers are of another kind than they must be: noted and told
        raise_interruption(error)
        faults.note(f"{provider.name} gave answers about the parts of operators that cannot be read", error)
        return plain
    return [_with_fault(answer, view, failed[0]) for answer in answers] if failed else answers


def _with_fault(answer: Claim | Rejection, view: GraphView, fault: str) -> Claim | Rejection:
    if not isinstance(answer, Rejection) or answer.node is None or not has_body(answer.node, view.context):
        return answer
    return Rejection(f"{answer.reason}; {fault}", answer.node)


def _where(provider: ExecutionProvider, view: GraphView) -> str:
    """Return at which node a provider raises, as the end of a sentence; empty where no node does so alone."""
    nodes = view.nodes
    while len(nodes) > 1:
        middle = len(nodes) // 2
        halves = (nodes[:middle], nodes[middle:])
        nodes = next((half for half in halves if _raises(provider, replace(view, nodes=half))), ())
    return f" at {_text(nodes[0])}" if nodes else ""


def _raises(provider: ExecutionProvider, view: GraphView) -> bool:
    try:
        list(provider.get_capability(view))
    except Exception as error:  # noqa: BLE001 - the border to providers: the first fault is told, this finds its node
        raise_interruption(error)
        return True
    return False


def _text(node: Node) -> str:
    return f"{node.op_type} node {node.name!r}" if node.name else f"an unnamed {node.op_type} node"
