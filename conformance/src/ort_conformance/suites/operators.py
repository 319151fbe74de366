"""The operator suites: every backend node case, and generated ones."""

from __future__ import annotations

from collections.abc import Iterator

from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.suites.backend_cases import node_cases
from ort_conformance.suites.elementwise_cases import binary_cases, unary_cases
from ort_conformance.suites.odd_value_cases import odd_value_cases
from ort_conformance.suites.resizing_cases import resizing_cases
from ort_conformance.suites.shaped_cases import (
    movement_cases,
    product_cases,
    reduction_cases,
    row_cases,
    window_cases,
)

GENERATED = (
    unary_cases, binary_cases, reduction_cases, row_cases, product_cases, movement_cases, window_cases,
    resizing_cases, odd_value_cases,
)  # fmt: skip


def operator_checks() -> Iterator[Check]:
    """Yield the checks of ai.onnx: cases of onnx's backend suite, then generated ones."""
    for case in node_cases(is_ml=False):
        yield case_check("operators", case)
    for family in GENERATED:
        for case in family():
            yield case_check("operators", case)


def ml_checks() -> Iterator[Check]:
    """Yield the checks of ai.onnx.ml."""
    for case in node_cases(is_ml=True):
        yield case_check("ml", case)
