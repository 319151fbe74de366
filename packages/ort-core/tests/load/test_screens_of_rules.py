"""Screens of the pipelines' rules: over graphs of many kinds they stop no node at which a search finds the pattern."""

from __future__ import annotations

from pathlib import Path

import pytest
from exported_kinds import EXPORTED
from growing_kinds import MORE
from growing_models import GROWING

from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import walk
from ort_core.onnx_io.load import load_model
from ort_core.passes.base import RulePass
from ort_core.passes.normalize import normalize
from ort_core.passes.pipelines import build_basic_passes, build_extended_passes
from ort_core.rewrite.matcher import Search
from ort_core.rewrite.pattern import roots_of
from ort_core.rewrite.rule import RewriteRule
from ort_core.rewrite.screens import screen_of

PASSES = [*build_basic_passes(), *build_extended_passes()]
RULES = [rule for each in PASSES if isinstance(each, RulePass) for rule in each.rules]
KINDS = {**GROWING, **MORE, **EXPORTED}


@pytest.mark.parametrize("kind", KINDS)
def test_screen_stops_no_node_at_which_a_search_finds_a_rule(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(KINDS[kind](64).proto())
    model = load_model(path)
    normalize(model)
    wrong = [
        (rule.name, node) for rule in RULES for node in walk(model.graph) if _is_stopped_wrongly(model, rule, node)
    ]
    assert not wrong


def _is_stopped_wrongly(model: Model, rule: RewriteRule, node: Node) -> bool:
    roots = roots_of(rule.pattern)
    screen = screen_of(roots[0])
    return screen is not None and not screen(node) and Search(model, node).run(roots) is not None
