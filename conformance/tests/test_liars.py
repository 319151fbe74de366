"""The suite's own suite: one lying provider per promise, each caught by the check of that promise."""

from __future__ import annotations

import pytest
from liars import IN_OTHER_PROCESSES, KEPT_BY_THE_CORE, LIARS, NAME, Honest, Narrow, forget_leaks, overriding

from ort_conformance import EpProfile, Feature
from ort_conformance.catalogue import catalogue, checks_of
from ort_conformance.check import Check
from ort_conformance.outcome import Outcome
from ort_conformance.subject import Subject
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

CASE_SUITES = ("operators", "ml", "contrib", "partitioning", "models", "precision")
PROFILE = EpProfile(NAME, features=frozenset(Feature) - {Feature.DEVICE_MEMORY})
DECLARES_ALL = EpProfile(NAME, features=frozenset(Feature), device="npu")
PROMISES = [check for check in catalogue() if check.suite not in CASE_SUITES]


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    forget_leaks()


def finding_of(check: Check, provider: type[Honest], profile: EpProfile = PROFILE):
    with installed(plugin_of(provider)):
        return check.run(Subject(profile))


@pytest.mark.parametrize("name", LIARS)
def test_liar_is_caught_by_the_check_of(name):
    [check] = [check for check in PROMISES if check.name == name]
    liar = LIARS[name]
    profile = DECLARES_ALL if check.needs is Feature.DEVICE_MEMORY else PROFILE
    profile = EpProfile(liar.name, features=profile.features, device=profile.device)
    finding = finding_of(check, liar, profile)
    assert finding.outcome is Outcome.BROKEN, f"{finding.outcome}: {finding.detail}"
    assert finding.detail.strip()


@pytest.mark.parametrize("check", PROMISES, ids=lambda check: check.name)
def test_honest_provider_is_not_accused_by(check):
    finding = finding_of(check, Honest)
    assert not finding.outcome.is_failure, finding.detail


def test_every_promise_has_its_liar():
    covered = {*LIARS, *KEPT_BY_THE_CORE, *IN_OTHER_PROCESSES}
    assert {check.name for check in PROMISES} == covered


@pytest.mark.parametrize("suite", ["models", "partitioning", "contrib"])
def test_provider_that_is_wrong_is_a_mismatch_in(suite):
    liar = LIARS["contract/sample_graphs_are_computed_rightly"]
    findings = [finding_of(check, liar) for check in checks_of(suite)[:4]]
    assert {finding.outcome for finding in findings} == {Outcome.MISMATCH}


def test_provider_that_computes_in_fewer_bits_is_caught_by_the_precision_of_every_operator():
    checks = [check for check in checks_of("precision") if "x" in check.name]
    findings = {check.name: finding_of(check, overriding(partition=Narrow)) for check in checks}
    assert {name: found.outcome for name, found in findings.items()} == dict.fromkeys(findings, Outcome.BROKEN)


def test_plugin_that_loads_its_sdk_on_import_is_caught(install):
    install("liar_with_sdk", PLUGIN.format(extra="import hypothesis", body="pass"))
    finding = _run("contract/importing_the_plugin_loads_no_sdk")
    assert finding.outcome is Outcome.BROKEN
    assert "hypothesis" in finding.detail


def test_plugin_on_disk_that_loads_nothing_is_not_accused(install):
    install("honest_on_disk", PLUGIN.format(extra="", body="pass"))
    assert _run("contract/importing_the_plugin_loads_no_sdk").outcome is Outcome.HELD
    assert _run("cache/two_processes_share_a_cache").outcome is Outcome.HELD


def test_provider_whose_results_differ_between_processes_is_caught(install):
    twist = "import os; outputs[:] = [value + os.getpid() for value in outputs]"
    install("liar_by_process", PLUGIN.format(extra="", body=twist))
    assert _run("cache/two_processes_share_a_cache").outcome is Outcome.BROKEN


def _run(name: str):
    [check] = [check for check in PROMISES if check.name == name]
    return check.run(Subject(PROFILE))


PLUGIN = """
from ort_core.plugin import KernelPartition, KernelProvider, hookimpl
from ort_core.plugin.kernels import BoundGraph
{extra}

ORT_PLUGIN_API = (2, 0)


class Partition(KernelPartition):
    def run(self, plan, inputs, outputs, run_state):
        super().run(plan, inputs, outputs, run_state)
        {body}


class Provider(KernelProvider):
    name = "LiarExecutionProvider"

    def compile(self, request):
        return Partition(BoundGraph(request.graph, request.context))


@hookimpl
def ort_providers():
    return [Provider]
"""
