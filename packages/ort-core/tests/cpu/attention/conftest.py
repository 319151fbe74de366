"""Thread pools of several sizes for kernels of attention."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ort_core.cpu.threads.pool import ThreadPool


@pytest.fixture(scope="module")
def pools() -> Iterator[list[ThreadPool]]:
    made = [ThreadPool(1), ThreadPool(2), ThreadPool(5)]
    yield made
    for pool in made:
        pool.close()
