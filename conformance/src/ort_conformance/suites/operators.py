"""The operator suites: every backend node case, and generated ones."""

from __future__ import annotations

from collections.abc import Iterator

from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.suites.backend_cases import node_cases
from ort_conformance.suites.generated_cases import generated_cases


def operator_checks() -> Iterator[Check]:
    """Yield the checks of ai.onnx: cases of onnx's backend suite, then generated ones."""
    for case in (*node_cases(is_ml=False), *generated_cases()):
        yield case_check("operators", case)


def ml_checks() -> Iterator[Check]:
    """Yield the checks of ai.onnx.ml."""
    for case in node_cases(is_ml=True):
        yield case_check("ml", case)
