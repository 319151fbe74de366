"""Reasons of the CPU compiler are read by people: each is a sentence of its own, which says what is the case."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ort_core.cpu

CPU = Path(ort_core.cpu.__file__).parent
VERB = re.compile(
    r"\b(is|are|has|have|do|does|did|gives?|takes?|needs?|names?|ends?|leaves|lies?|broadcasts|declares|describe|differ"
    r"|stands?|depends?|failed|keeps|reads?|fits?|were|can|cannot)\b"
)


def _reasons() -> Iterator[tuple[str, str]]:
    """Yield where a reason stands and its text, with an ellipsis for what it is filled with."""
    for path in sorted(CPU.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "NotLowered" and call.args:
                parts = call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else [call.args[0]]
                text = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts)
                if text != "…":  # made elsewhere
                    yield f"{path.relative_to(CPU)}:{call.lineno}", text


def test_every_reason_is_a_sentence() -> None:
    reasons = list(_reasons())
    assert len(reasons) > 100
    unclear = [f"{place}: {text}" for place, text in reasons if not VERB.search(text)]
    assert not unclear, "say what is the case, not what is there:\n" + "\n".join(unclear)
