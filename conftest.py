"""What every test of the repository shares: where external test data lies, and a header that says when it is absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("repository", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repository")  # how busy the machine is decides no test

ABSENT = "ORT_TEST_DATA is not set to a folder: tests on external models and cases are skipped"


def find_test_data() -> Path | None:
    """Return the folder of external test data, or ``None`` when there is none."""
    folder = os.environ.get("ORT_TEST_DATA", "")
    return Path(folder) if folder and Path(folder).is_dir() else None


def pytest_report_header() -> str:
    """State once, at the top, whether external test data is used."""
    folder = find_test_data()
    return f"external test data: {folder}" if folder else ABSENT


@pytest.fixture(scope="session")
def external_test_data() -> Path:
    """Return the folder of external test data; a test that asks for it is skipped when there is none."""
    folder = find_test_data()
    if folder is None:
        pytest.skip(ABSENT)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests away from the user's cache, so that they neither fill it nor depend on what lies there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ORT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
