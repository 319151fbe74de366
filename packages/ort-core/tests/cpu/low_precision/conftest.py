"""Fixtures for kernels of few bits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ort_core.cpu.threads.pool import ThreadPool

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def pool() -> ThreadPool:
    """Two threads, so that shares and barriers are exercised."""
    return ThreadPool(2)
