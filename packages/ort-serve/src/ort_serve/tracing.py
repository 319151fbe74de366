"""OpenTelemetry's spans of requests: the request, and in it the waiting in the queue and the run.

The spans of a request hang below the one that its ``traceparent`` names. What becomes of them is the program's matter:
its tracer provider, or with ``ort serve --otel`` the exporter that the ``OTEL_*`` variables describe.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ort_serve.failures import RequestFailure
from ort_serve.protocol.requests import RunTimes


class Tracing:
    """Begins spans.

    Args:
        provider: OpenTelemetry's tracer provider; None: the global one.

    Raises:
        ModuleNotFoundError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: Any = None) -> None:
        from opentelemetry import propagate, trace

        self._trace = trace
        self._extract = propagate.extract
        self._tracer = trace.get_tracer("ort_serve", tracer_provider=provider)

    def begin(self, protocol: str, model: str, headers: Mapping[str, str]) -> RequestSpan:
        """Begin the span of a request.

        Args:
            protocol: ``http`` or ``grpc``.
            model: what is asked.
            headers: with lower names, among them ``traceparent``.
        """
        begin = time.time_ns()
        span = self._tracer.start_span(
            f"infer {model}",
            context=self._extract(headers),
            kind=self._trace.SpanKind.SERVER,
            attributes={"ort.model": model, "network.protocol.name": protocol},
            start_time=begin,
        )
        return RequestSpan(self._trace, self._tracer, span, begin - time.monotonic_ns())


class RequestSpan:
    """The span of one request.

    Spans have the system's time of the request's beginning, and lengths by the monotonic clock: the system's may be set
    meanwhile.

    Args:
        trace: OpenTelemetry's module.
        tracer: begins spans.
        span: has begun.
        offset: from the monotonic clock to the system's, in nanoseconds.
    """

    def __init__(self, trace: Any, tracer: Any, span: Any, offset: int) -> None:
        self._trace = trace
        self._tracer = tracer
        self._span = span
        self._offset = offset

    def ran(self, version: str, times: RunTimes) -> None:
        """Add the spans of the waiting and of the run."""
        context = self._trace.set_span_in_context(self._span)
        self._span.set_attribute("ort.model.version", version)
        for name, begin, end in (
            ("queue", times.arrived_ns, times.started_ns),
            ("run", times.started_ns, times.ended_ns),
        ):
            if not begin or not end:
                continue  # it never came so far
            span = self._tracer.start_span(name, context=context, start_time=begin + self._offset)
            if name == "run":
                span.set_attribute("ort.batch.rows", times.batch_rows)
            span.end(end + self._offset)

    def end(self, failure: BaseException | None) -> None:
        """End the span, with what went wrong."""
        if failure is not None:
            outcome = failure.outcome if isinstance(failure, RequestFailure) else type(failure).__name__
            self._span.set_attribute("error.type", outcome)
            self._span.set_status(self._trace.StatusCode.ERROR, str(failure))
        self._span.end(time.monotonic_ns() + self._offset)

    def __enter__(self) -> RequestSpan:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)


def tracing_to_exporter() -> Tracing:
    """Return spans sent by OTLP over HTTP, as the ``OTEL_*`` variables say.

    Raises:
        ModuleNotFoundError: OpenTelemetry's SDK or its exporter is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "ort-serve"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
