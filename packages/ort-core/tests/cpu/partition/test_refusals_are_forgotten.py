"""A refusal in lowering is an exception: it must not stay in a variable of a frame, which would keep all callers."""

from __future__ import annotations

import gc
import weakref

import pytest

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.partition.group_lowering import _Walk
from ort_core.ir.dims import DimTooLarge


class Session:
    """What a caller up the stack holds."""


class ForgetfulLowering:
    """All that a walk asks of a lowering when a node refuses."""

    def forget(self, node: object) -> None:
        """Do nothing."""


def refuse() -> None:
    raise NotLowered("no such kernel")


def count_too_far() -> None:
    raise DimTooLarge("2**70")


@pytest.mark.parametrize("lower", [refuse, count_too_far])
def test_what_callers_hold_goes_with_them(lower) -> None:
    def load() -> weakref.ref[Session]:
        session = Session()
        walk = _Walk(ForgetfulLowering(), [node])
        walk.attempt(node, lower)
        assert list(walk.refusals) == [node]
        return weakref.ref(session)

    node = object()
    gc.disable()
    try:
        assert load()() is None
    finally:
        gc.enable()
