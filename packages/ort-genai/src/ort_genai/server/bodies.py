"""Bodies of requests, read and checked, and the errors that answer those that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ort_core.errors import did_you_mean

_TYPES = ("str", "int", "float", "bool", "none")  # as pydantic calls them
_T = TypeVar("_T", bound=BaseModel)


class Refused(Exception):
    """An answer with an error."""

    def __init__(
        self, status: int, message: str, kind: str = "invalid_request_error", code: str | None = None,
        param: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.kind, self.code, self.param = status, kind, code, param


async def _read(request: HttpRequest, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise Refused(413, f"the request has more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_body(request: HttpRequest, kind: type[_T], limit: int) -> _T:
    """Return the body of a request.

    Raises:
        Refused: it is too long, no JSON, or does not fit.
    """
    try:
        return kind.model_validate_json(await _read(request, limit))
    except ValidationError as error:
        raise fault_of(error, kind) from error


def read_query(request: HttpRequest, kind: type[_T]) -> _T:
    """Return what stands behind the question mark of a request's address; names that end in ``[]`` are lists.

    Raises:
        Refused: it does not fit.
    """
    given: dict[str, str | list[str]] = {}
    for name, value in request.query_params.multi_items():
        listed = given.setdefault(name[:-2], []) if name.endswith("[]") else None
        if isinstance(listed, list):
            listed.append(value)
        else:
            given[name] = value
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise fault_of(error, kind) from error


def fault_of(error: ValidationError, kind: type[BaseModel]) -> Refused:
    """Return what a client is told of the first thing that does not fit."""
    listed = error.errors(include_url=False, include_context=False)
    first = listed[0]
    if first["type"] == "extra_forbidden":
        place = ".".join(str(each) for each in first["loc"])
        near = did_you_mean(str(first["loc"][-1]), list(kind.model_fields)) if len(first["loc"]) == 1 else ""
        return Refused(400, f"Unrecognized request argument supplied: {place}.{near}", param=place)
    place = _place(first["loc"])
    told = [each["msg"].removeprefix("Value error, ") for each in listed if _place(each["loc"]) == place]
    words = ", or ".join(dict.fromkeys(told))  # of a field that may be of several types
    return Refused(400, f"{place}: {words}" if place else f"the body: {words}", param=place or None)


def _place(path: Sequence[int | str]) -> str:
    """Return the name of a field, without the names that pydantic gives to the types that it may have."""
    return ".".join(str(each) for each in path if str(each) not in _TYPES and "[" not in str(each))


def error_answer(
    status: int, message: str, kind: str = "invalid_request_error", code: str | None = None, param: str | None = None
) -> Response:
    """Return an error in OpenAI's form."""
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status)
