"""Determinism: equal inputs give equal results, bit by bit where the provider declares it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ort_conformance.check import promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.profile import Feature
from ort_conformance.subject import Subject
from ort_conformance.suites.networks import NETWORKS, Network
from ort_conformance.suites.sample_graphs import FIXED_PRODUCT

SUITE = "determinism"
CHOSEN = ("perceptron", "residual_network", "encoder")


@promise(SUITE)
def runs_agree_within_tolerance(subject: Subject) -> None:
    """Ten runs of one session give the same within rounding."""
    for name, build in _networks():
        model, feeds = build()
        with subject.session(model) as session:
            first, *others = [session.run(None, feeds) for _ in range(10)]
        for found in others:
            difference = find_difference(found, first, "approximate")
            require(difference is None, f"{name}: {difference}")


@promise(SUITE)
def what_constants_decide_is_the_same_in_every_run(subject: Subject) -> None:
    """A product of quantized weights, which no pass folds, is not written over by what is added to it."""
    feeds = FIXED_PRODUCT.feeds()
    with subject.session(FIXED_PRODUCT.model(), is_optimized=False) as session:
        first, *others = [session.run(None, {"x": feeds["x"] * factor}) for factor in (1, -2, 3, 1)]
    for factor, found in zip((-2, 3, 1), others, strict=True):
        expected = [np.asarray(first[0]) + feeds["x"] * (factor - 1)]
        difference = find_difference(found, expected, "approximate")
        require(difference is None, f"{FIXED_PRODUCT.name}, {factor} times the input: {difference}")


@promise(SUITE, needs=Feature.BITWISE_REPEATABLE)
def runs_agree_bit_by_bit(subject: Subject) -> None:
    """Runs of one session, one after the other and in threads, give equal bits."""
    for name, build in _networks():
        model, feeds = build()
        with subject.session(model) as session, ThreadPoolExecutor(4) as pool:
            first = session.run(None, feeds)
            found = [session.run(None, feeds), *pool.map(lambda _: session.run(None, feeds), range(16))]  # noqa: B023 - the pool is done before the next turn
        require(all(_same_bits(first, each) for each in found), f"{name}: the bits differ between runs")


@promise(SUITE, needs=Feature.BITWISE_REPEATABLE)
def sessions_agree_bit_by_bit(subject: Subject) -> None:
    """Sessions of one model give equal bits."""
    for name, build in _networks():
        model, feeds = build()
        results = []
        for _ in range(3):
            with subject.session(model) as session:
                results.append(session.run(None, feeds))
        require(all(_same_bits(results[0], each) for each in results), f"{name}: the bits differ between sessions")


@promise(SUITE, needs=Feature.DYNAMIC_SHAPES)
def other_sizes_in_between_change_nothing(subject: Subject) -> None:
    """A size gives the same before and after other sizes ran."""
    for name in CHOSEN:
        build, first, second = NETWORKS[name]
        model, feeds = build("float32", first)
        _, others = build("float32", second)
        with subject.session(model) as session:
            before = session.run(None, feeds)
            session.run(None, others)
            difference = find_difference(session.run(None, feeds), before, "approximate")
        require(difference is None, f"{name}: {difference}")


@promise(SUITE, needs=Feature.DYNAMIC_SHAPES)
def models_with_symbolic_sizes_are_claimed(subject: Subject) -> None:
    """A network of dense layers whose rows are symbolic runs on the provider."""
    model, _ = NETWORKS["perceptron"][0]()
    with subject.session(model) as session:
        own = session.explain().on(subject.name)
    require(own, "no node of a network with symbolic rows was claimed")


def _networks() -> list[tuple[str, Callable[..., Network]]]:
    return [(name, NETWORKS[name][0]) for name in CHOSEN]


def _same_bits(left: Sequence[object], right: Sequence[object]) -> bool:
    pairs = zip(left, right, strict=True)
    return all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs)
