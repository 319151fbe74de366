"""Cases that schemathesis generates from the OpenAPI document: none fails the server, each answer is as it says."""

from __future__ import annotations

import os

import httpx
import pytest
from serve_fixtures import DOUBLER, ECHO_TYPES, echo_text, running_server, write_model

from ort_serve.rest.openapi import openapi_document
from ort_serve.rest.routes import build_routes
from ort_serve.server_settings import Limits

CASES = int(os.environ.get("ORT_SERVE_CASES", "40"))  # of each address


def test_the_document_names_every_address_of_the_protocol(tmp_path):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    told = {(method, path) for path, item in openapi_document()["paths"].items() for method in item}
    with running_server(path, grpc_port=None) as running:
        routes = build_routes(running.server.state)
        given = httpx.get(f"http://{running.http}/openapi.json").json()
    assert given == openapi_document()
    for route in routes:
        if not route.path.startswith("/v2") or "cuda" in route.path or route.path.endswith(("/setting", "/logging")):
            continue
        assert any((method.lower(), route.path) in told for method in route.methods), route.path


@pytest.fixture
def root(tmp_path):
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    write_model(echo_text(ECHO_TYPES["BYTES"]), tmp_path / "texts" / "1" / "model.onnx")
    return tmp_path


def schema_of(running):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is installed by `nox -s serving`")
    return schemathesis.openapi.from_url(f"http://{running.http}/openapi.json")


def test_generated_cases_never_fail_the_server(root):
    with running_server(root, limits=Limits(read_s=5.0)) as running:
        seen = try_operations(schema_of(running))
    assert len(seen) >= 25
    assert 200 in seen["POST /v2/repository/index"]
    assert seen["POST /v2/models/{model}/infer"] >= {400, 404}


def test_generated_cases_of_loading_and_unloading_never_fail_the_server(root):
    with running_server(root, limits=Limits(read_s=5.0), allows_loading=True) as running:
        seen = try_operations(schema_of(running), "/v2/repository/models/")
        running.call(running.server.repository.load("doubler"))
        assert running.server.repository.get_version("doubler", "").version == "1"
    loads = [codes for label, codes in seen.items() if label.endswith(("/load", "/unload"))]
    assert len(loads) == 2
    assert all(codes >= {200, 404} for codes in loads), seen


def try_operations(schema, beginning: str = "/") -> dict[str, set[int]]:
    """Let schemathesis ask each address that begins so; return the statuses of its answers."""
    from hypothesis import HealthCheck, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    seen: dict[str, set[int]] = {}

    def try_cases(operation, mode) -> None:
        @settings(
            max_examples=CASES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case):
            known = case.path_parameters.get("model") in ("doubler", "texts")
            if "{model}" in operation.path and not known and len(case.path_parameters.get("model", "")) % 2 == 0:
                case.path_parameters["model"] = "doubler"  # every second one meets a model
            answer = case.call()
            seen.setdefault(operation.label, set()).add(answer.status_code)
            case.validate_response(answer, checks=checks)

        run()

    for result in schema.get_all_operations():
        operation = result.ok()
        if not operation.path.startswith(beginning):
            continue
        try_cases(operation, GenerationMode.POSITIVE)
        if operation.body:
            try_cases(operation, GenerationMode.NEGATIVE)
    return seen
