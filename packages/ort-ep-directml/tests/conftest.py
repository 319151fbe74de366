"""What the tests share: their helper modules are found beside them, and a rig that runs the real DirectML."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from directml_rig.errors import RigUnavailableError
from directml_rig.rig import the_rig


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs the rig where there is none: here, not in the fixture, so that pytest has one line for all."""
    if "rig" in getattr(item, "fixturenames", ()):
        try:
            the_rig()
        except RigUnavailableError as error:
            pytest.skip(str(error))


@pytest.fixture
def rig():
    """The real DirectML on a device of Python; a rule of Direct3D that was broken meanwhile fails the test."""
    found = the_rig()
    found.faults()
    if found.device is not None and found.device.removed:
        found.forget_device()  # another test lost it, and its failed calls may still hold it
    yield found
    assert found.faults() == []
