"""The providers of ort-core, held to what every provider promises."""

from __future__ import annotations

from pathlib import Path

from ort_conformance import EpProfile, Feature, conformance_tests

EXPECTED = Path(__file__).with_name("expected_failures_core.toml")
FEATURES = frozenset(
    {
        Feature.BITWISE_REPEATABLE, Feature.DYNAMIC_SHAPES, Feature.CONCURRENT_RUNS, Feature.CONTROL_FLOW,
        Feature.FILLS_BUFFERS,
    }
)  # fmt: skip
REFERENCE = EpProfile(
    "ReferenceExecutionProvider",
    features=FEATURES,
    expected_failures=EXPECTED,
)
CPU = EpProfile(
    "CPUExecutionProvider",
    features=FEATURES | {Feature.STORES_COMPILED},
    expected_failures=EXPECTED,
)

test_reference = conformance_tests(REFERENCE, share=0.05)
test_cpu = conformance_tests(CPU, share=0.05)
