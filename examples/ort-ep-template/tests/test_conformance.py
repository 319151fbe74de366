"""TemplateExecutionProvider, held to what every provider promises."""

from pathlib import Path

from ort_conformance import EpProfile, Feature, conformance_tests

PROFILE = EpProfile(
    "TemplateExecutionProvider",
    features=frozenset({Feature.BITWISE_REPEATABLE, Feature.DYNAMIC_SHAPES, Feature.CONCURRENT_RUNS}),
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
)

test_conformance = conformance_tests(PROFILE)
