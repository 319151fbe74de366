"""Each operator that has a kernel is named by a family of random graphs, or stands here with the reason."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from ort_core.kernels.reference_registry import reference_kernels
from random_graphs import families
from random_graphs.families.reductions import REDUCTIONS

RANDOM = "its results are random: tests of distributions hold it"

_REASONS: Mapping[str, str] = {
    RANDOM: "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "it takes a sparse tensor, and feeds of graphs are dense": "com.microsoft:SparseToDenseMatMul",
    "bfloat16 alone, whose roundings in a row of products leave no truth": "com.microsoft:Mamba2Verify",
    "encoded bytes of images, which no operator makes": "ImageDecoder",
    "it refuses each graph": "ai.onnx.preview.training:Gradient",
    "a whole search over subgraphs; other searches are drawn": "com.microsoft:WhisperBeamSearch",
}
"""By reason, operators that no family draws."""


def _named() -> set[str]:
    """Return the texts of the families' modules: names of operators among them."""
    found = {f"Reduce{each}" for each in REDUCTIONS}
    for path in Path(families.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.update(node.value.split())
    return found


def _split(text: str) -> list[tuple[str, str]]:
    return [(domain, name) for domain, _, name in (each.rpartition(":") for each in text.split())]


def test_each_operator_with_a_kernel_is_drawn_or_has_its_reason():
    named = _named()
    undrawn = {each for each in reference_kernels().names() if each[1] not in named}
    listed = [each for text in _REASONS.values() for each in _split(text)]
    assert len(set(listed)) == len(listed), "each has one reason"
    missing = sorted(undrawn - set(listed))
    assert not missing, f"give each a family (families/__init__.py says how), or a reason above: {missing}"
    stale = sorted(set(listed) - undrawn)
    assert not stale, f"families draw these now: {stale}"
