"""The OpenAPI document of the addresses, given at ``/openapi.json``: what generators of clients and of cases read."""

from __future__ import annotations

from typing import Any

from ort_serve import __version__
from ort_serve.protocol.datatypes import DATATYPES

Document = dict[str, Any]
_TEXT: Document = {"type": "string"}
_COUNT: Document = {"type": "integer", "minimum": 0}
_FLAG: Document = {"type": "boolean"}
_ANYTHING: Document = {"type": "object"}
_NUMBER = {"type": "string", "pattern": "^[0-9]{1,9}$"}
_ERRORS = {400: "It cannot be read, or does not fit.", 401: "It needs the token.", 404: "There is none of that name.",
           413: "It is too large.", 503: "It does not serve now."}  # fmt: skip


def _object(properties: Document, *required: str) -> Document:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: Document) -> Document:
    return {"type": "array", "items": items}


def _schema(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


_SHARED = {"shared_memory_region": _TEXT, "shared_memory_offset": _COUNT, "shared_memory_byte_size": _COUNT}
_SHAPE: Document = {"type": "array", "items": _COUNT, "maxItems": 64}
_DATATYPE: Document = {"type": "string", "enum": list(DATATYPES)}
_SCHEMAS: Document = {
    "Error": _object({"error": _TEXT}, "error"),
    "Server": _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}, "name", "version", "extensions"),
    "Tensor": _object(
        {"name": _TEXT, "datatype": _DATATYPE, "shape": _list({"type": "integer"})}, "name", "datatype", "shape"
    ),
    "Model": _object(
        {
            "name": _TEXT, "versions": _list(_TEXT), "platform": _TEXT,
            "inputs": _list(_schema("Tensor")), "outputs": _list(_schema("Tensor")),
        },
        "name", "versions", "platform", "inputs", "outputs",
    ),
    "Data": {"type": "array", "items": {"oneOf": [{"type": "number"}, _FLAG, _TEXT, _schema("Data")]}},
    "Input": _object(
        {
            "name": _TEXT, "datatype": _DATATYPE, "shape": _SHAPE, "data": _schema("Data"),
            "parameters": {"type": "object", "properties": {"binary_data_size": _COUNT, **_SHARED}},
        },
        "name", "datatype", "shape",
    ),
    "WantedOutput": _object(
        {
            "name": _TEXT,
            "parameters": {
                "type": "object", "properties": {"binary_data": _FLAG, "classification": _COUNT, **_SHARED}
            },
        },
        "name",
    ),
    "Output": _object(
        {"name": _TEXT, "datatype": _DATATYPE, "shape": _SHAPE, "data": _schema("Data"), "parameters": _ANYTHING},
        "name", "datatype", "shape",
    ),
    "InferRequest": _object(
        {
            "id": _TEXT, "inputs": _list(_schema("Input")), "outputs": _list(_schema("WantedOutput")),
            "parameters": {
                "type": "object",
                "properties": {"binary_data_output": _FLAG, "priority": _COUNT, "timeout": _COUNT},
            },
        },
        "inputs",
    ),
    "InferResponse": _object(
        {"model_name": _TEXT, "model_version": _TEXT, "id": _TEXT, "outputs": _list(_schema("Output"))},
        "model_name", "model_version", "outputs",
    ),
    "Index": _list(
        _object({"name": _TEXT, "version": _TEXT, "state": _TEXT, "reason": _TEXT}, "name", "state")
    ),
    "Statistics": _object({"model_stats": _list(_ANYTHING)}, "model_stats"),
    "Region": _object(
        {"key": {"type": "string", "minLength": 1}, "offset": _COUNT, "byte_size": {"type": "integer", "minimum": 1}},
        "key", "byte_size",
    ),
    "Regions": _list(_object({"name": _TEXT, "key": _TEXT, "offset": _COUNT, "byte_size": _COUNT})),
    "Anything": _ANYTHING,
}  # fmt: skip


def _media(schema: str) -> Document:
    return {"application/json": {"schema": _schema(schema)}}


def _operation(summary: str, answer: str, asked: str = "", more: dict[int, str] | None = None) -> Document:
    errors = _ERRORS | (more or {})
    found: Document = {
        "summary": summary,
        "responses": {
            "200": {"description": "It is done.", "content": _media(answer)},
            **{str(code): {"description": text, "content": _media("Error")} for code, text in errors.items()},
        },
    }
    if asked:
        found["requestBody"] = {"required": asked != "Anything", "content": _media(asked)}
    return found


def _parameters(path: str) -> list[Document]:
    named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": _NUMBER if name == "version" else _TEXT}
        for name in named
    ]


def _paths() -> Document:
    infer_errors = {
        408: "Its body did not arrive in time.", 429: "Too many requests wait.", 499: "The client left.",
        500: "The model failed.", 504: "Its time was up.", 501: "It is not offered here.",
    }  # fmt: skip
    table: dict[str, dict[str, Document]] = {
        "/v2": {"get": _operation("The server's metadata", "Server")},
        "/v2/health/live": {"get": _operation("Whether the server runs", "Anything")},
        "/v2/health/ready": {"get": _operation("Whether every model can answer", "Anything")},
        "/v2/models/stats": {"get": _operation("Counts of all models", "Statistics")},
        "/v2/repository/index": {"post": _operation("The models", "Index", "Anything")},
        "/v2/systemsharedmemory/status": {"get": _operation("Regions of shared memory", "Regions")},
        "/v2/systemsharedmemory/region/{region}/status": {"get": _operation("One region", "Regions")},
        "/v2/systemsharedmemory/region/{region}/register": {
            "post": _operation(
                "Register a region", "Anything", "Region", {403: "It is not offered.", 501: "None here."}
            )
        },
        "/v2/systemsharedmemory/region/{region}/unregister": {
            "post": _operation("Unregister a region", "Anything", "Anything")
        },
        "/v2/systemsharedmemory/unregister": {"post": _operation("Unregister all regions", "Anything", "Anything")},
        "/v2/logging": {"get": _operation("What is logged", "Anything")},
        "/v2/trace/setting": {"get": _operation("Which requests are traced", "Anything")},
    }
    for verb in ("load", "unload"):
        table[f"/v2/repository/models/{{model}}/{verb}"] = {
            "post": _operation(
                f"{verb.capitalize()} a model", "Anything", "Anything", {403: "Not allowed.", 501: "Not offered."}
            )
        }
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        table |= {
            model: {"get": _operation("A model's metadata", "Model")},
            f"{model}/ready": {"get": _operation("Whether a model can answer", "Anything")},
            f"{model}/config": {"get": _operation("A model's configuration", "Anything")},
            f"{model}/stats": {"get": _operation("A model's counts", "Statistics")},
            f"{model}/explain": {"get": _operation("Where its nodes run", "Anything")},
            f"{model}/infer": {"post": _operation("Run a model", "InferResponse", "InferRequest", infer_errors)},
        }
    for path, item in table.items():
        if "{" in path:
            item["parameters"] = _parameters(path)  # type: ignore[assignment]  # a list beside the operations
    return table


def openapi_document() -> Document:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "ort-serve: the Open Inference Protocol, version 2", "version": __version__},
        "paths": _paths(),
        "components": {"schemas": _SCHEMAS},
    }
