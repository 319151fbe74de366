"""A share of the mutants of models in which something is fused; and the mutations themselves."""

from __future__ import annotations

import functools
import logging
import pickle
import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from ort_core.passes.fusions import qdq_selector
from random_graphs.explained import explanation
from random_graphs.mutating import mutants
from random_graphs.mutating.campaign import record
from random_graphs.mutating.draft import Draft, NotHere
from random_graphs.mutating.mutants import COMPILED, MUTATIONS, AllPasses, Model, judged, model_of, mutant_of
from random_graphs.mutating.patterns import PATTERNS
from random_graphs.mutating.records import made, recorded_model, recorded_paths
from random_graphs.mutating.transformers import TRANSFORMERS

NAMES = [*PATTERNS, *TRANSFORMERS]
UNCHECKED = ("generating",)  # it has an operator of onnxruntime in ONNX's domain
OF_EACH = 3  # `nox -s mutants` tries as many as one likes, of hundreds of models
COMPILED_SHARE = 3  # one mutant in so many is compiled
PLANTED = range(400)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@functools.cache
def pattern(name: str) -> Model:
    """Return a pattern, or a transformer, with feeds and values."""
    return model_of(*made(name))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_mutants_give_their_truth_behind_all_passes_and_compiled(name: str) -> None:
    model, first = pattern(name), 1000 * NAMES.index(name)
    cases = [case for number in range(first, first + OF_EACH) if (case := mutant_of(model, number)) is not None]
    assert cases, "most numbers give a mutant"
    for case in cases:
        engines = [AllPasses(), COMPILED] if case.seed % COMPILED_SHARE == 0 else [AllPasses()]
        found, endings = judged(case, engines)
        unknown = [each for each in found if explanation(case, each) is None]
        assert not unknown, (case.flags, unknown)
        assert set(endings) == {each.name for each in engines}


@pytest.mark.parametrize("name", NAMES)
def test_something_fires_in_each_pattern(name: str) -> None:
    engine = AllPasses()
    model = pattern(name)
    assert model.is_checked or name in UNCHECKED
    case = mutants.MutantCase(1, model.proto, [model.feeds], ())
    engine.session(case)
    fired = set(engine.fired) - {"DeadCodeElimination", "ConstantSharing"}
    assert fired or "quantized" in name or name in ("blocks of weights",), "the compiler lowers some as they are"


@pytest.mark.filterwarnings("ignore")
def test_an_attribute_that_a_pass_does_not_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdq_selector, "refuse_attributes", lambda *given, **named: None)
    model = pattern("quantized average")
    cases = (case for number in PLANTED if (case := mutant_of(model, number)) is not None)
    asked = (case for case in cases if any("dilations" in change for change in case.flags))
    assert any(judged(case, [AllPasses()])[0] for case in asked)


@pytest.mark.filterwarnings("ignore")
def test_every_mutation_finds_a_place() -> None:
    unseen = {mutation.__name__: mutation for _, mutation in MUTATIONS}
    for seed in range(200):
        model = pattern(list(PATTERNS)[seed % len(PATTERNS)])
        for name, mutation in list(unseen.items()):
            proto = onnx.ModelProto.FromString(model.proto.SerializeToString())
            draft = Draft(proto.graph, 21, dict(model.feeds), model.values, random.Random(seed))
            try:
                change = mutation(draft)
            except (NotHere, ValueError):
                continue
            feeds_differ = any(draft.feeds.get(each) is not array for each, array in model.feeds.items())
            assert proto != model.proto or feeds_differ or draft.opset != 21, change
            del unseen[name]
        if not unseen:
            return
    raise AssertionError(f"no pattern of 200 has taken {sorted(unseen)}")


def test_one_number_makes_one_mutant() -> None:
    one, other = (mutant_of(pattern("attention"), 5) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.flags == other.flags
    assert one.model == other.model


TESTS = """
import numpy as np
import ort_core


def test_a_session_runs():
    session = ort_core.InferenceSession({content!r}, providers=["CPUExecutionProvider"])
    session.run(None, {{"x": np.full({shape}, 2, np.float32)}})
"""


def test_the_plugin_records_what_tests_of_several_folders_run(tmp_path: Path) -> None:
    names = ("Gelu", "quantized sum")
    for name in names:
        place = tmp_path / name.replace(" ", "_")
        place.mkdir()
        (place / "conftest.py").write_text("")
        model = pattern(name)
        text = TESTS.format(content=model.proto.SerializeToString(), shape=model.feeds["x"].shape)
        (place / f"test_{place.name}.py").write_text(text)
    folder = tmp_path / "models"
    record(folder, [str(tmp_path)])
    records = [pickle.loads(path.read_bytes()) for path in recorded_paths(folder)]
    assert {*NAMES} == {each["test"] for each in records if "::" not in each["test"]}
    records = [each for each in records if "::" in each["test"]]
    assert {onnx.ModelProto.FromString(each["model"]).graph.node[-1].op_type for each in records} == {
        pattern(name).proto.graph.node[-1].op_type for name in names
    }
    assert all(each["feeds"]["x"].max() == 2 for each in records)


def test_a_record_becomes_a_model_with_feeds(tmp_path: Path) -> None:
    content = pattern("Gelu").proto.SerializeToString()
    feeds = {"x": np.ones((3, 8), np.float32)}
    for number, fed in enumerate((None, feeds)):
        (tmp_path / f"{number}.pickle").write_bytes(pickle.dumps({"model": content, "feeds": fed, "test": "t"}))
    (tmp_path / "2.pickle").write_bytes(pickle.dumps({"model": b"", "feeds": feeds, "test": "t"}))
    models = {path.stem: recorded_model(path) for path in recorded_paths(tmp_path)}
    assert models["2"] is None
    assert models["1"] is not None
    np.testing.assert_array_equal(models["1"].values["i"], 1 + np.arange(1, 9)[None].repeat(3, 0))
    assert models["0"] is not None
    assert models["0"].feeds["x"].shape == (3, 8)
