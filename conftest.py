"""What every test of the repository shares: where external test data lies, and a header that says when it is absent."""

from __future__ import annotations

import cProfile
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How busy the machine is decides no test, and what is tried is the same on every day: `nox -s examples` tries others.
repository = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repository", repository)
settings.register_profile("search", repository, derandomize=False, print_blob=True)
settings.load_profile("repository")

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


@pytest.fixture
def calls_of() -> Callable[..., tuple[int, Any]]:
    """Return a function that calls one, and tells how many calls that made here, C's included, and the result.

    What a machine does meanwhile changes a time, of the processor too; it does not change this number.
    """

    def count(function: Callable[..., Any], *arguments: object) -> tuple[int, Any]:
        profile = cProfile.Profile()
        gc.collect()
        gc.disable()  # what others left behind is no part of the work
        try:
            result = profile.runcall(function, *arguments)
        finally:
            gc.enable()
        return sum(entry.callcount for entry in profile.getstats()), result

    return count


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests away from the user's cache, so that they neither fill it nor depend on what lies there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ORT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
