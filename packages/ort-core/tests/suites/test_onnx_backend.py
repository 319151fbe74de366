"""Every case of the ONNX backend test suite of the installed onnx, by its own expected outputs and tolerances."""

from __future__ import annotations

import numpy as np
import pytest
from backend_suite import backend_cases, data_sets, model_of
from expectations import assert_names_only, read_expectations
from onnx_values import assert_same_values

import ort_core as ort
from ort_core.environment import default_environment

EXPECTED = read_expectations("backend")
RANDOM = EXPECTED.of_kind("random")
DRAWS = 400


@pytest.mark.parametrize("name", [EXPECTED.parameter(n, n) for n in backend_cases() if n not in RANDOM])
def test_backend_case_gives_its_expected_outputs(name):
    case = backend_cases()[name]
    session = ort.InferenceSession(model_of(case))
    for feeds, expected in data_sets(case):
        found = session.run(None, feeds)
        assert_same_values(found[: len(expected)], expected, case.rtol, case.atol)


@pytest.mark.parametrize("name", RANDOM)
def test_random_backend_case_draws_by_its_probabilities(name, monkeypatch):
    monkeypatch.setattr(default_environment(), "seed", 1)
    case = backend_cases()[name]
    session = ort.InferenceSession(model_of(case))
    [(feeds, [expected])] = data_sets(case)
    draws = np.stack([session.run(None, feeds)[0] for _ in range(DRAWS)])
    assert draws.shape[1:] == expected.shape
    assert draws.dtype == expected.dtype
    assert np.isin(draws, (0, 1)).all()
    if "seed" in name:
        again = ort.InferenceSession(model_of(case)).run(None, feeds)[0]
        assert np.array_equal(draws[0], again), "a fixed seed gives the same draw in every session"
        return
    [given] = feeds.values()
    probability = 1 - given if "expanded" in name else given  # onnx's body has Greater(uniform, p): 1 - p
    deviation = np.sqrt(probability * (1 - probability) / DRAWS)
    assert (np.abs(draws.mean(axis=0) - probability) <= 6 * deviation + 1e-12).all()


def test_the_installed_backend_suite_is_complete():
    assert len(backend_cases()) >= 2000, "onnx ships about 2,000 backend cases; a loader that finds fewer has lost some"
    assert_names_only("backend", set(backend_cases()))
