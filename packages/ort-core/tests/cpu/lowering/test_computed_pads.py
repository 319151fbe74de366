"""Borders as wide as sizes tell: sequences filled up to whole blocks, or brought to one length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import NodeProto, helper

Agrees = Callable[..., None]
NUMBERS = {"four": np.array([4]), "seven": np.array([7]), "none": np.array([0])}


def padded(mode: str, behind: list[NodeProto], order: list[str]) -> list[NodeProto]:
    """Return a Pad of the first axis by ``behind``, or by "none", before and behind it."""
    return [
        helper.make_node("Shape", ["x"], ["length"], end=1),
        *behind,
        helper.make_node("Concat", [order[0], "none", order[1], "none"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["wide"], mode=mode),
        helper.make_node("Sin", ["wide"], ["y"]),
    ]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_sequences_are_filled_up_to_whole_blocks(agrees: Agrees, mode: str) -> None:
    behind = [
        helper.make_node("Mod", ["length", "four"], ["rest"]),
        helper.make_node("Sub", ["four", "rest"], ["missing"]),
        helper.make_node("Mod", ["missing", "four"], ["behind"]),
    ]
    for order in (["none", "behind"], ["behind", "behind"]):
        agrees(padded(mode, behind, order), NUMBERS, ["n", 3], (5, 3), (8, 3), (6, 3), (7, 3))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("order", [["none", "behind"], ["behind", "none"]])
def test_sequences_are_filled_up_or_cut_to_one_length(agrees: Agrees, mode: str, order: list[str]) -> None:
    behind = [helper.make_node("Sub", ["seven", "length"], ["behind"])]
    agrees(padded(mode, behind, order), NUMBERS, ["n", 3], (5, 3), (7, 3), (9, 3), (6, 3))
