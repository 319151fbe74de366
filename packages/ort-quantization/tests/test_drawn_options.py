"""Random networks in random ways of quantizing, beside onnxruntime's tool: the same files, results and refusals.

``nox -s quantized_graphs`` judges more of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from drawn_networks import drawn_network
from drawn_options import drawn_choices
from judged_options import judged

SWEPT = [pytest.param(seed, marks=pytest.mark.sweep) for seed in range(1003, 1016)]


@pytest.mark.parametrize("seed", [*range(1000, 1003), *SWEPT])
def test_a_drawn_network_is_quantized_as_by_onnxruntime(tmp_path, seed):
    random = np.random.default_rng([32, seed])
    model = drawn_network(random)
    choices = drawn_choices(random, model)
    found = judged(model, choices, tmp_path)
    is_as_there = found.kind in ("equal", "refused", "only theirs refuses")
    assert is_as_there or found.reason, (found.kind, choices, found.differences, found.errors)
