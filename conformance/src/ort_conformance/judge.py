"""judge_case(): who computed a case, and whether rightly. Claiming, compiling and running are told apart."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import ort_core as ort
from ort_conformance.case import Case, DataSet, Margins
from ort_conformance.check import Check
from ort_conformance.comparison import distance, find_difference
from ort_conformance.outcome import Finding, Outcome, RefusedOperator
from ort_conformance.subject import ORACLE, Subject
from ort_core.errors import EPFail
from ort_core.tolerances import ToleranceName

if TYPE_CHECKING:
    from ort_core.partitioning.report import PlacementReport

CARRIED = 4.0  # times what nudges move an output: they are drawn a few times, and other orders of sums are other draws


def case_check(suite: str, case: Case, fallbacks: tuple[str, ...] = (ORACLE,)) -> Check:
    """Return the check that judges a case of a suite; what the provider leaves goes to ``fallbacks``, then the CPU."""

    def judge(subject: Subject) -> Finding:
        return judge_case(subject, case, f"{suite}/{case.name}", fallbacks)

    def foresee(subject: Subject) -> Finding:
        return foresee_case(subject, case)

    return Check(f"{suite}/{case.name}", "the outputs are right", judge, is_case=True, foresee=foresee)


def judge_case(subject: Subject, case: Case, check: str, fallbacks: tuple[str, ...] = (ORACLE,)) -> Finding:
    """Compute a case with the provider in the first place, and say what became of it."""
    if case.unjudged:
        return Finding(Outcome.NOT_JUDGED, case.unjudged, operators_of(case))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # cases feed hostile numbers on purpose
        try:
            session = subject.lenient_session(case.model(), is_optimized=case.is_optimized, fallbacks=fallbacks)
        except EPFail as error:
            return Finding(Outcome.FAILED_IN_COMPILE, str(error), operators_of(case))
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            return _without_session(case, error)
        with session:
            placed = _placement(session.explain(), subject.name)
            return placed if placed.outcome.is_failure else _judge_runs(subject, session, case, check, placed)


def _without_session(case: Case, error: Exception) -> Finding:
    """Tell a case that cannot be loaded by anyone from one that only this provider keeps from loading."""
    text = f"no session: {type(error).__name__}: {error}"
    try:
        source = case.model()
        ort.InferenceSession(
            source if isinstance(source, str) else source.SerializeToString(), providers=[ORACLE]
        ).close()
    except ort.OrtError:
        return Finding(Outcome.ELSEWHERE_FAILED, text)
    return Finding(Outcome.FAILED_IN_COMPILE, text, operators_of(case))


def operators_of(case: Case) -> tuple[str, ...]:
    """Return the operators of a case that nobody placed, as its model names them; of a model in a file none."""
    model = case.model()
    if isinstance(model, str):
        return ()
    return tuple(dict.fromkeys(_operator(node.domain, node.op_type) for node in model.graph.node))


def foresee_case(subject: Subject, case: Case) -> Finding:
    """Say what a provider that cannot run here would take of a case, and build it where its package can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            foreseen = subject.foresee(case.model(), is_optimized=case.is_optimized)
        except ort.OrtError as error:
            return Finding(Outcome.ELSEWHERE_FAILED, f"not placed: {type(error).__name__}: {error}")
        placed = _placement(foreseen.report, subject.name)
        if placed.outcome not in _AS_CLAIMED:
            return placed
        try:
            refused = foreseen.build(subject.name)
        except EPFail as error:
            return replace(placed, outcome=Outcome.FAILED_IN_COMPILE, detail=str(error))
    if refused is not None:
        return replace(placed, outcome=_AS_CLAIMED[placed.outcome], detail=refused.reason)
    return replace(placed, outcome=_AS_BUILT[placed.outcome])


_AS_CLAIMED = {Outcome.RAN: Outcome.CLAIMED, Outcome.FELL_BACK: Outcome.PARTLY_CLAIMED}
_AS_BUILT = {Outcome.RAN: Outcome.BUILT, Outcome.FELL_BACK: Outcome.PARTLY_BUILT}


def _placement(report: PlacementReport, provider: str) -> Finding:
    own = tuple(dict.fromkeys(_operator(node.domain, node.op_type) for node in report.on(provider)))
    refusals = tuple(
        dict.fromkeys(
            RefusedOperator(_operator(node.domain, node.op_type), refusal.reason)
            for node in report.nodes
            for refusal in node.refusals
            if refusal.provider == provider
        )
    )
    faults = [r.reason for node in report.nodes for r in node.refusals if r.provider == provider and r.is_fault]
    if faults:
        return Finding(Outcome.FAILED_IN_CLAIM, faults[0], own, refusals)
    if report.fallbacks:
        return Finding(Outcome.FAILED_IN_COMPILE, report.fallbacks[0], own, refusals)
    if not report.nodes:
        return Finding(Outcome.NOT_JUDGED, "no node is left to run", own, refusals)
    if not own:
        return Finding(Outcome.REFUSED, "; ".join(f"{r.operator}: {r.reason}" for r in refusals[:3]), own, refusals)
    everywhere = all(node.provider == provider for node in report.nodes)
    return Finding(Outcome.RAN if everywhere else Outcome.FELL_BACK, _left(refusals), own, refusals)


def _is_the_oracles(
    found: Sequence[object], data: DataSet, case: Case, limits: ToleranceName | Margins, placed: Finding
) -> bool:
    """Return whether the reference kernels alone, who computed a part, miss what is expected in the same way."""
    if placed.outcome is not Outcome.FELL_BACK:
        return False
    model = case.model()
    source = model if isinstance(model, str) else model.SerializeToString()
    with ort.InferenceSession(source, providers=[ORACLE]) as oracle:
        return find_difference(found, oracle.run(None, data.feeds), limits) is None


def _is_carried(found: Sequence[object], data: DataSet, case: Case, limits: ToleranceName | Margins) -> bool:
    """Return whether outputs differ no further than the case itself carries changes in the last digits."""
    if case.carried is None or len(found) < len(data.expected):
        return False
    carried = case.carried(data)
    return all(
        find_difference([a], [b], limits) is None or distance(a, b) <= CARRIED * moved
        for a, b, moved in zip(found, data.expected, carried, strict=False)
    )


def _left(refusals: tuple[RefusedOperator, ...]) -> str:
    return "; ".join(f"left {r.operator}: {r.reason}" for r in refusals[:3])


def _operator(domain: str, op_type: str) -> str:
    return f"{domain}::{op_type}" if domain not in ("", "ai.onnx") else op_type


def _judge_runs(subject: Subject, session: ort.InferenceSession, case: Case, check: str, placed: Finding) -> Finding:
    takes_part = placed.outcome is not Outcome.REFUSED
    limits = subject.profile.tolerance_for(check) or case.limits
    remarks: list[str] = []
    for data in case.data_sets():
        try:
            found = session.run(None, data.feeds)
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            outcome = Outcome.FAILED_IN_RUN if takes_part else Outcome.ELSEWHERE_FAILED
            return Finding(outcome, f"{type(error).__name__}: {error}", placed.operators, placed.refusals)
        difference = find_difference(found, data.expected, limits)
        if difference is None:
            continue
        if not _is_carried(found, data, case, limits):
            outcome = Outcome.MISMATCH if takes_part else Outcome.ELSEWHERE_FAILED
            if _is_the_oracles(found, data, case, limits, placed):
                outcome, difference = Outcome.NOT_JUDGED, f"the reference kernels alone give the same: {difference}"
            return Finding(outcome, difference, placed.operators, placed.refusals)
        remarks.append(f"{difference}, which is what the model makes of a change in the last digits of its inputs")
    return replace(placed, detail="; ".join(filter(None, [*remarks[:1], placed.detail])))
