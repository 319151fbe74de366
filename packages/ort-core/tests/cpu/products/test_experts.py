"""Mixtures of experts are compiled: against a token-by-token network in float64, for every form of experts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from expert_cases import Experts, check, session
from onnx import helper
from run_levels import run_at_level

from ort_core.cpu.partition.partition import CpuPartition

PLAIN = Experts()
SWIGLU = replace(PLAIN, activation="swiglu", fusion=1, limit=1.0)
CASES = {
    "relu": PLAIN,
    "one expert": replace(PLAIN, k=1, biases=False),
    "all experts": replace(PLAIN, k=5, activation="identity"),
    "gelu, shares that sum up to one": replace(PLAIN, activation="gelu", normalized=1, k=3),
    "silu of three layers": replace(PLAIN, activation="silu", third=True),
    "gates side by side": SWIGLU,
    "gates before the rest": replace(SWIGLU, fusion=2, limit=None),
    "gates of their own": replace(SWIGLU, fusion=0, third=True),
    "a late limit": replace(SWIGLU, limit=0.3, is_late=True),
    "fed weights": replace(PLAIN, is_constant=False),
    "shapes of earlier exporters": replace(PLAIN, is_early=True),
    "long rows": replace(PLAIN, hidden=130, inner=400, biases=False, activation="silu", k=1),
    "single columns": replace(PLAIN, hidden=1, inner=1),
}


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_experts_answer_as_token_by_token(case: str, threads: int) -> None:
    check(CASES[case], threads)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_beside_the_rows_is_touched(case: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check(CASES[case])


@pytest.mark.usefixtures("nothing_runs_by_numpy")
def test_experts_of_halves_are_computed_in_float32() -> None:
    check(replace(PLAIN, dtype=np.float16), eps=2e-3)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
def test_results_are_the_same_with_any_number_of_threads() -> None:
    feeds = CASES["long rows"].feeds(40)
    first, *others = (session(CASES["long rows"].model(), n).run(None, feeds)[0].tobytes() for n in (1, 2, 4))
    assert others == [first, first]


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_without_numbers_leaves_others_alone(value: float) -> None:
    feeds = PLAIN.feeds(6)
    expected = PLAIN.truth(feeds["x"], feeds["router"])
    feeds["x"][1, 3] = value
    feeds["router"][4, 2] = value
    found = session(PLAIN.model(), 2).run(None, feeds)[0]
    assert np.isnan(found[4]).all()
    assert not np.isfinite(found[1]).any()
    np.testing.assert_allclose(np.delete(found, (1, 4), 0), np.delete(expected, (1, 4), 0), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
def test_of_equal_experts_the_first_are_asked() -> None:
    case = replace(PLAIN, k=2)
    feeds = case.feeds(3)
    feeds["router"][:] = 1
    found = session(case.model(), 2).run(None, feeds)[0]
    feeds["router"][:, 2:] -= 1e-4  # decides for the first two, and changes their shares by that much
    np.testing.assert_allclose(found, case.truth(feeds["x"], feeds["router"]), rtol=1e-3, atol=1e-3)


def test_the_sparse_mixer_is_left_to_its_kernel(partitions: list[CpuPartition]) -> None:
    """Each of the two experts counts as among the logits within a fiftieth of it, without those chosen before."""
    model, feeds = PLAIN.model(), PLAIN.feeds(6)
    model.graph.node[0].attribute.append(helper.make_attribute("use_sparse_mixer", 1))
    feeds["router"] = np.tile(np.array([3.0, 2.99, 1.0, 2.98, -4.0], np.float32), (6, 1))
    found = session(model, 2).run(None, feeds)[0]
    logits = feeds["router"][0].astype(np.float64)
    shares = np.zeros(5)
    shares[0] = 1 / np.exp(logits[[0, 1, 3]] - logits[0]).sum()
    shares[1] = 1 / np.exp(logits[[1, 3]] - logits[1]).sum()
    expected = PLAIN.truth(feeds["x"], feeds["router"], np.tile(shares, (6, 1)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert [str(reason) for each in partitions for reason in each.refusals.values()] == [
        "the sparse mixer is not generated"
    ]


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
def test_code_of_each_level_answers_as_token_by_token(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in CASES.values():
        check(each)
