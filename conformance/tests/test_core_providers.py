"""The providers of ort-core, held to what every provider promises."""

from __future__ import annotations

from ort_conformance import EpProfile, Feature, conformance_tests

REFERENCE = EpProfile(
    "ReferenceExecutionProvider",
    features=frozenset({Feature.BITWISE_REPEATABLE, Feature.DYNAMIC_SHAPES, Feature.CONCURRENT_RUNS}),
)
CPU = EpProfile(
    "CPUExecutionProvider",
    features=frozenset({Feature.BITWISE_REPEATABLE, Feature.DYNAMIC_SHAPES, Feature.CONCURRENT_RUNS}),
)

test_reference = conformance_tests(REFERENCE, share=0.05)
test_cpu = conformance_tests(CPU, share=0.05)
