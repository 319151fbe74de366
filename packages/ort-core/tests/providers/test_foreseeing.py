"""Providers that cannot run here are asked what they would run: by the stage, and by ``ort explain``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ort_core.cli.app import build_app
from ort_core.environment import Environment
from ort_core.errors import InvalidArgument, NotImplemented, ProviderUnavailable
from ort_core.onnx_io.save import save_model
from ort_core.options import SessionOptions
from ort_core.providers.capability import Capability, GraphView
from ort_core.providers.provider import Available, Unavailable
from ort_core.stages import ForeseenPlacement, foresee
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import EchoProvider, echo_of, plugin_of
from ort_core.testing.models import model_of

CHAIN = """g (float[N, 3] x) => (float[N, 3] y) {
    a = Relu (x)
    b = Sigmoid (a)
    c = Neg (b)
    y = Add (c, a)
}"""
BRANCH = """g (float[N] x, bool flag) => (float[N] y) {
    y = If (flag) <
        then_branch = t () => (float[N] t) { t = Neg (x) },
        else_branch = e () => (float[N] e) { u = Abs (x) e = Sqrt (u) }
    >
}"""


class Elsewhere(EchoProvider):
    """Claims by rules that need no device, which is not here."""

    name = "ElsewhereExecutionProvider"
    operators = frozenset({"Relu", "Neg", "Add"})
    compiled: list[tuple[str, ...]] = []  # noqa: RUF012 - a record of the class, as its base has it

    @classmethod
    def check(cls) -> Available | Unavailable:
        return Unavailable("the board is not plugged in", "plug it in")


class WithoutSdk(Elsewhere):
    """Needs an SDK to decide, which is not installed."""

    name = "WithoutSdkExecutionProvider"

    def get_capability(self, view: GraphView) -> Capability:
        raise NotImplemented("the boards' SDK is not installed (pip install boards)")


class NeedsDevice(Elsewhere):
    """Opens its device when it is made."""

    name = "NeedsDeviceExecutionProvider"

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        raise OSError("/dev/board: no such file")


Near = echo_of("Sigmoid", name="NearExecutionProvider")


@pytest.fixture
def environment() -> Iterator[Environment]:
    Elsewhere.compiled.clear()
    with installed(plugin_of(Elsewhere, WithoutSdk, NeedsDevice, Near)) as made:
        yield made


def foreseen(environment: Environment, *names: str, body: str = CHAIN, strict: bool = False) -> ForeseenPlacement:
    options = SessionOptions()
    options.strict_placement = strict
    return foresee(model_of(body), options, environment, [(f"{name}ExecutionProvider", {}) for name in names])


def providers_of(found: ForeseenPlacement) -> dict[str, str]:
    return {node.op_type: node.provider.removesuffix("ExecutionProvider") for node in found.report.nodes}


def test_a_provider_that_cannot_run_says_what_it_would_run(environment: Environment) -> None:
    found = foreseen(environment, "Elsewhere")
    assert providers_of(found) == {"Relu": "Elsewhere", "Sigmoid": "CPU", "Neg": "Elsewhere", "Add": "Elsewhere"}
    (refusal,) = next(node for node in found.report.nodes if node.op_type == "Sigmoid").refusals
    assert refusal.reason == "ElsewhereExecutionProvider does not run Sigmoid"
    reason = "the board is not plugged in (plug it in)"
    assert found.report.unavailable == (("ElsewhereExecutionProvider", reason),)
    assert found.report.is_foreseen
    assert "Placement as it would be" in str(found.report)
    assert Elsewhere.compiled == [], "nothing is compiled for hardware that is not here"


def test_providers_are_asked_in_the_order_given_whether_they_are_here_or_not(environment: Environment) -> None:
    found = foreseen(environment, "Elsewhere", "Near")
    assert providers_of(found)["Sigmoid"] == "Near"
    assert found.report.providers == ("ElsewhereExecutionProvider", "NearExecutionProvider", "CPUExecutionProvider")
    assert Near.compiled == []


def test_bodies_of_control_flow_are_placed_too(environment: Environment) -> None:
    placed = {node.op_type: node for node in foreseen(environment, "Elsewhere", body=BRANCH).report.nodes}
    assert placed["Neg"].provider == "ElsewhereExecutionProvider"
    assert placed["Sqrt"].provider == "CPUExecutionProvider"
    assert placed["Neg"].path


def test_a_provider_without_its_sdk_leaves_all_for_the_reason_that_it_gives(environment: Environment) -> None:
    report = foreseen(environment, "WithoutSdk").report
    assert report.counts() == {"CPUExecutionProvider": 4}
    reasons = {refusal.reason for node in report.nodes for refusal in node.refusals}
    assert reasons == {"the boards' SDK is not installed (pip install boards)"}


def test_a_provider_that_needs_its_device_to_be_made_is_named_with_both_reasons(environment: Environment) -> None:
    with pytest.raises(ProviderUnavailable, match=r"/dev/board: no such file.*not plugged in"):
        foreseen(environment, "NeedsDevice")


def test_a_provider_that_is_not_installed_cannot_be_asked(environment: Environment) -> None:
    with pytest.raises(ProviderUnavailable, match="cannot be asked what it would run: no installed package"):
        foreseen(environment, "Missing")


def test_options_are_checked_though_the_provider_cannot_run(environment: Environment) -> None:
    with pytest.raises(InvalidArgument, match="speed"):
        foresee(model_of(CHAIN), SessionOptions(), environment, [("ElsewhereExecutionProvider", {"speed": "1"})])


def test_strict_names_the_first_node_that_would_run_elsewhere(environment: Environment) -> None:
    with pytest.raises(ProviderUnavailable, match=r"Sigmoid\) would run on CPUExecutionProvider, not on Elsewhere"):
        foreseen(environment, "Elsewhere", strict=True)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    save_model(model_of(CHAIN), path)
    return path


def explain(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(build_app(), ["explain", *map(str, arguments)], prog_name="ort", env={"COLUMNS": "200"})
    return found.exit_code, found.stdout, found.stderr


@pytest.mark.usefixtures("environment")
def test_explain_shows_claims_and_why_the_provider_cannot_run(model_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, text, _ = explain(model_file, "-p", "elsewhere", "--html", page)
    assert code == 0
    assert "Nothing was compiled" in text
    assert "ElsewhereExecutionProvider cannot run here: the board is not plugged in (plug it in)" in text
    assert "3 on ElsewhereExecutionProvider" in text
    assert "does not run Sigmoid" in text
    assert '"foreseen":true' in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("environment")
def test_explain_shows_one_row_for_a_reason_that_holds_for_all_nodes(model_file: Path) -> None:
    _, text, _ = explain(model_file, "-p", "withoutsdk")
    assert text.count("pip install boards") == 1
    assert "(all)" in text


@pytest.mark.usefixtures("environment")
def test_explain_places_for_this_machine_where_a_named_provider_runs_here(model_file: Path) -> None:
    request = (model_file, "-p", "elsewhere", "-p", "near", "--json")
    _, text, warned = explain(*request)
    assert json.loads(text)["counts"] == {"NearExecutionProvider": 1, "CPUExecutionProvider": 3}
    assert "not available" in warned
    _, text, _ = explain(*request, "--as-if-available")
    found = json.loads(text)
    assert found["is_foreseen"]
    assert found["counts"] == {"ElsewhereExecutionProvider": 3, "NearExecutionProvider": 1}


@pytest.mark.usefixtures("environment")
def test_explain_strict_fails_for_a_provider_that_cannot_run(model_file: Path) -> None:
    code, _, said = explain(model_file, "-p", "elsewhere", "--strict")
    assert code == 1
    assert "not plugged in" in said


@pytest.mark.usefixtures("environment")
def test_explain_refuses_to_foresee_without_providers(model_file: Path) -> None:
    code, _, said = explain(model_file, "--as-if-available")
    assert code == 2
    assert "--provider" in said
