"""Slices that run backwards to the begin of an axis of an open size, as exporters write its reversal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

Agrees = Callable[..., None]


@pytest.mark.parametrize("end", [-(2**63), -(2**63) + 1, -(2**31) + 1])
@pytest.mark.parametrize(("start", "step"), [(-1, -1), (2**63 - 1, -2)])
def test_an_end_before_every_element(agrees: Agrees, end: int, start: int, step: int) -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "d"], ["z"]), helper.make_node("Exp", ["z"], ["y"])]
    constants = {"s": np.array([start]), "e": np.array([end]), "a": np.array([1]), "d": np.array([step])}
    agrees(nodes, constants, ["n", "t", 8], (2, 20, 8), (1, 2, 8), (3, 7, 8))
