"""Commands that show: inspect, explain, providers, doctor, cache."""

import re

import pytest

from ort_core import environment as environments
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.environment import Environment
from ort_core.providers.discovery import entry_point_sources
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import UnavailableProvider, plugin_of


def test_inspect_counts_nodes_operators_and_parameters(ort, model_path):
    data = ort("inspect", model_path("small"), "--json").data
    assert data["operators"] == {"ai.onnx::Relu": 1, "ai.onnx::Identity": 1, "ai.onnx::MatMul": 1}
    assert data["parameters"]["count"] == 8
    assert data["parameters"]["nbytes"] == 32
    assert data["inputs"][0]["shape"] == ["N", 4]
    assert data["opsets"] == {"ai.onnx": 21}


def test_inspect_estimates_the_values_alive_at_once(ort, model_path):
    data = ort("inspect", model_path("small"), "--dim", "N=10", "--json").data
    # Relu's output and its copy by Identity: two of 10 x 4 floats; MatMul's result is smaller than either.
    assert data["memory"]["peak_values_nbytes"] == 2 * 10 * 4 * 4
    assert data["memory"]["inputs_nbytes"] == 160


def test_inspect_tree_shows_bodies_inside_their_node(ort, model_path):
    text = ort("inspect", model_path("branch"), "--tree").out
    lines = [line for line in text.splitlines() if "Sqrt" in line or "else_branch" in line or "If" in line]
    assert any("│" in line or "    " in line for line in lines if "Sqrt" in line), text
    nested = ort("inspect", model_path("branch"), "--tree", "--json").data["nodes"][0]["graphs"]
    assert [[node["operator"] for node in graph["nodes"]] for graph in nested] == [
        ["ai.onnx::Neg"],
        ["ai.onnx::Abs", "ai.onnx::Sqrt"],
    ]


def test_explain_names_the_provider_of_every_node(ort, model_path):
    data = ort("explain", model_path("small"), "--level", "disable", "--json").data
    assert data["counts"] == {"CPUExecutionProvider": 3}
    assert {node["op_type"] for node in data["nodes"]} == {"Relu", "Identity", "MatMul"}
    plain, told = (ort("explain", model_path("small"), *more).out for more in ((), ("--nodes",)))
    assert len(told) > len(plain)
    assert told.count("CPUExecutionProvider") == plain.count("CPUExecutionProvider") > 0, "told once, not in every row"


def test_explain_warns_on_stderr_of_a_provider_that_is_not_there(ort, model_path):
    with installed(plugin_of(UnavailableProvider)):
        result = ort("explain", model_path("small"), "-p", "unavailable", "-p", "cpu", "--json")
    assert result.code == 0
    assert result.data["unavailable"].keys() == {"UnavailableExecutionProvider"}
    assert "warning:" in result.err
    assert ort("explain", model_path("small"), "-p", "rknpu").code == 1, "not installed, and in no package"


def test_providers_lists_installed_and_missing_ones(ort):
    rows = {row["name"]: row for row in ort("providers", "--json").data["providers"]}
    assert rows["CPUExecutionProvider"]["is_available"]
    assert not rows["ReferenceExecutionProvider"]["is_listed"]
    assert "pip install ort-ep-cuda" in rows["CUDAExecutionProvider"]["remarks"]
    assert "CUDAExecutionProvider" in ort("providers", "--options").out


def test_providers_explains_each_option(ort, monkeypatch):
    own = [source for source in entry_point_sources() if source.distribution == "ort-core"]
    monkeypatch.setattr(environments, "_default", Environment(lambda: own))
    rows = {row["name"]: row for row in ort("providers", "--json").data["providers"]}
    options = {option["name"]: option for option in rows["CPUExecutionProvider"]["options"]}
    assert options["precision"]["type"] == "'float32' | 'bfloat16'"
    assert options["precision"]["default"] == "'float32'"
    assert options["precision"]["sentence"].startswith("What attention, and products and convolutions")
    assert rows["CUDAExecutionProvider"]["options"] == [], "the package is not installed: nobody knows its options"
    assert "What attention, and products and convolutions" in ort("providers", "--options").out


def test_doctor_reports_versions_hardware_and_no_problem(ort):
    result = ort("doctor", "--json")
    assert result.data["versions"]["numpy"]
    assert result.data["hardware"]["logical_cores"] >= 1
    assert (result.code == 0) == (result.data["problems"] == [])
    assert "processor" in ort("doctor").out


def test_doctor_says_which_environment_variables_have_no_effect(ort, monkeypatch):
    monkeypatch.setenv("ORT_INTER_OP_NUM_THREADS", "4")
    monkeypatch.setenv("ORT_INTRA_OP_NUM_THREADS", "2")
    settings = ort("doctor", "--json").data["settings"]
    assert settings["ORT_INTRA_OP_NUM_THREADS"] == "2"
    assert settings["ORT_INTER_OP_NUM_THREADS"].startswith("4 (no effect here: operators run one after the other")


@pytest.fixture
def filled_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    cache = ArtefactCache()
    for index in range(3):
        cache.put(CacheKey("kind", bytes([index])), b"x" * 100)
    return tmp_path / "cache"


def test_cache_lists_sizes_and_clears_its_entries(ort, filled_cache):
    assert ort("cache", "path").out.strip() == str(filled_cache)
    assert ort("cache", "size", "--json").data["entries"] == 3
    assert len(ort("cache", "list", "--json").data) == 3
    shown = ort("cache", "list").out
    assert "kind" in shown
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d *$", shown, re.MULTILINE), "seconds and zones cut the models' paths"
    assert ort("cache", "clear", "--json").data == {**ort("cache", "size", "--json").data, "removed": 3}
    assert ort("cache", "list").out.strip() == "the cache is empty"


@pytest.mark.parametrize(
    "command",
    ["run", "inspect", "optimize", "explain", "bench", "profile", "compare", "extract", "providers", "doctor"],
)
def test_every_command_has_help_and_json(ort, command):
    text = ort(command, "--help").out
    assert "--json" in text
