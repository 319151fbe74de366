"""What may go wrong with a request, each with its status in HTTP and in gRPC.

A message is one or two sentences for the client: what was found, what was expected, what to do.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class RequestFailure(Exception):
    """A request that gets no result.

    Attributes:
        status: HTTP status.
        code: name of the gRPC status.
        outcome: its kind in the metrics.
        retry_after_s: for refusals that pass by, when to try again.
        is_counted: it stands in the counts of its model.
    """

    status = 500
    code = "INTERNAL"
    outcome = "failed"
    retry_after_s: float | None = None
    is_counted = False

    def __str__(self) -> str:
        """Return the message as UTF-8 can hold it."""
        return plain_text(super().__str__())


def plain_text(text: str) -> str:
    """Return a text that UTF-8 can hold: words of requests and names of files may have halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


class InvalidRequest(RequestFailure):
    """The request cannot be read, or does not fit the model."""

    status = 400
    code = "INVALID_ARGUMENT"
    outcome = "invalid"


class Unauthenticated(RequestFailure):
    """No token, or a wrong one."""

    status = 401
    code = "UNAUTHENTICATED"
    outcome = "unauthenticated"


class Forbidden(RequestFailure):
    """The server is set up not to do this."""

    status = 403
    code = "PERMISSION_DENIED"
    outcome = "forbidden"


class NotFound(RequestFailure):
    """There is no such model, version or region."""

    status = 404
    code = "NOT_FOUND"
    outcome = "not_found"


class NotAllowed(RequestFailure):
    """The address does not take this method."""

    status = 405
    code = "INVALID_ARGUMENT"
    outcome = "invalid"


class TooSlow(RequestFailure):
    """The client took too long to send its request."""

    status = 408
    code = "DEADLINE_EXCEEDED"
    outcome = "too_slow"


class TooLarge(RequestFailure):
    """The request, or its result, is beyond a limit of this server."""

    status = 413
    code = "INVALID_ARGUMENT"
    outcome = "too_large"


class Overloaded(RequestFailure):
    """A queue is full."""

    status = 429
    code = "RESOURCE_EXHAUSTED"
    outcome = "overloaded"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Cancelled(RequestFailure):
    """The client left before the result was there."""

    status = 499
    code = "CANCELLED"
    outcome = "cancelled"


class ModelFailed(RequestFailure):
    """The model raised an error that is not the client's."""


class Unsupported(RequestFailure):
    """A part of the protocol that has no meaning here."""

    status = 501
    code = "UNIMPLEMENTED"
    outcome = "unsupported"


class NotReady(RequestFailure):
    """The model is known, but cannot answer now."""

    status = 503
    code = "UNAVAILABLE"
    outcome = "not_ready"


class DeadlineExceeded(RequestFailure):
    """The request's time was up, the waiting in a queue included."""

    status = 504
    code = "DEADLINE_EXCEEDED"
    outcome = "deadline"


def failure_of(error: BaseException) -> RequestFailure:
    """Return an error in the protocol's words; one that is nobody's refusal is written to the log."""
    if isinstance(error, RequestFailure):
        return error
    log.error("a run failed", exc_info=error)
    return ModelFailed(f"the model failed: {type(error).__name__}: {error}")
