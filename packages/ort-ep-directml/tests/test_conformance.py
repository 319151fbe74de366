"""The provider on the rig, held to what every provider promises."""

from pathlib import Path

import pytest
from directml_rig.errors import RigUnavailableError
from directml_rig.rig import the_rig
from rig_provider import rig_plugin

from ort_conformance import EpProfile, Feature, conformance_tests
from ort_core.testing.environments import installed

SHARE = 0.02  # of the operator cases; count_on_rig.py runs all
PROFILE = EpProfile(
    "DmlRigExecutionProvider",
    tolerances={"operators/test_attention_*fp16*": "approximate"},  # sums of products are rounded at other places
    features=frozenset({Feature.BITWISE_REPEATABLE, Feature.FILLS_BUFFERS, Feature.CONCURRENT_RUNS}),
    means="the real DirectML for WSL, its shaders run on the processor; no GPU and no driver",
    expected_failures=Path(__file__).with_name("expected_failures.toml"),
)


@pytest.fixture(autouse=True, scope="module")
def _installed_provider():
    try:
        rig = the_rig()
    except RigUnavailableError as error:
        pytest.skip(str(error))
    rig.faults()
    with installed(rig_plugin()):
        yield
    assert rig.faults() == []


test_conformance = conformance_tests(PROFILE, suites=("contract", "operators", "errors", "determinism"), share=SHARE)
