"""Operator cases recorded from onnxruntime's own tests, expected failures and their messages included."""

from __future__ import annotations

import functools
import gzip
import json
import os

import pytest
from expectations import assert_names_only, read_expectations
from outside_runners import build_worker, find_cases, import_runner

FILES = sorted(find_cases("operators").glob("*.jsonl.gz"))
EXPECTED = read_expectations("operators")
ACCEPTED = ("pass",)


def lines_of(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


@functools.lru_cache(maxsize=2)
def kept_lines(path):
    return lines_of(path)


def identify(path, index, case):
    return f"{path.name.removesuffix('.jsonl.gz')} {case['test']}#{index}"


@pytest.fixture(scope="module")
def worker():
    os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    return build_worker(import_runner("run_operator_cases"))


IS_GUARDED = os.environ.get("ORT_GUARDED_MEMORY", "off") != "off"  # a case may end the process then: each is a test

if IS_GUARDED:
    EACH = [(path, index) for path in FILES for index in range(len(lines_of(path)))]

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        ("path", "index"), EACH, ids=[f"{path.name.removesuffix('.jsonl.gz')}-{index}" for path, index in EACH]
    )
    def test_operator_case_fails_only_where_a_reason_is_given(path, index, worker):
        case = kept_lines(path)[index]
        result = worker.run_case(case)
        name = identify(path, index, case)
        assert result["status"] in ACCEPTED or name in EXPECTED.cases(), f"{name}: {result.get('msg', '')}"

else:

    @pytest.mark.filterwarnings("ignore")  # the cases feed hostile numbers on purpose; numpy's warnings are no finding
    @pytest.mark.sweep
    @pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
    def test_operator_cases_of_a_file_fail_only_where_a_reason_is_given(path, worker):
        failures = {}
        cases = lines_of(path)
        for index, case in enumerate(cases):
            result = worker.run_case(case)
            if result["status"] not in ACCEPTED:
                failures[identify(path, index, case)] = f"{result['status']}: {result.get('msg', '')}"
        expected = {identify(path, i, c) for i, c in enumerate(cases)} & set(EXPECTED.cases())
        assert {k: v for k, v in failures.items() if k not in expected} == {}
        assert sorted(expected - failures.keys()) == [], "these pass now: take them off the list"


def test_expected_failures_name_operator_cases_that_exist():
    assert_names_only("operators", {identify(path, i, c) for path in FILES for i, c in enumerate(lines_of(path))})
