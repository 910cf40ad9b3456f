"""One OpenTelemetry span per session, with `rse-transcribe[otel]`.

OpenTelemetry's own variables, OTEL_EXPORTER_OTLP_..., configure it; without
OTEL_EXPORTER_OTLP_ENDPOINT nothing is loaded or sent. Frames have no spans: at 86 per second they
would cost more than the transcription.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class SessionSpan(Protocol):
    """The span of one session."""

    def end(self, about: Mapping[str, object], failed: bool) -> None: ...


class _NoSpan:
    def end(self, about: Mapping[str, object], failed: bool) -> None:
        pass


class _OtelSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, about: Mapping[str, object], failed: bool) -> None:
        self._span.set_attributes(_attributes(about))
        if failed:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


NO_SPAN: SessionSpan = _NoSpan()

try:
    from opentelemetry import trace
    from opentelemetry.trace import Span, StatusCode
except ImportError:
    _available = False
else:
    _available = True


def start_session(session_id: str, about: Mapping[str, object]) -> SessionSpan:
    """Begins the span of a session; without OpenTelemetry, one that does nothing."""
    if not _available:
        return NO_SPAN
    tracer = trace.get_tracer("rse-transcribe")
    attributes = _attributes({"session_id": session_id, **about})
    return _OtelSpan(tracer.start_span("session", attributes=attributes))


def configure() -> None:
    """Sends spans to the collector named in the environment; for the command.

    Raises RuntimeError if one is named but the extra is not installed.
    """
    if not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise RuntimeError(
            f"{ENDPOINT} is set: pip install 'rse-transcribe[otel]', or unset it"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "rse-transcribe"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def _attributes(about: Mapping[str, object]) -> dict[str, str | bool | int | float]:
    return {
        f"rse.{name}": value if isinstance(value, str | bool | int | float) else str(value)
        for name, value in about.items()
        if value is not None
    }
