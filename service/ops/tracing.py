"""One OpenTelemetry span per session, with `rse-transcribe[otel]`.

OpenTelemetry's own variables, OTEL_EXPORTER_OTLP_..., configure it; without
OTEL_EXPORTER_OTLP_ENDPOINT nothing is loaded or sent. Frames have no spans: at 86 per second they
would cost more than the transcription.
"""

import os
from collections.abc import Mapping
from typing import Any

try:
    from opentelemetry import trace
except ImportError:
    trace = None  # type: ignore[assignment]

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class SessionSpan:
    """The span of a session, from now to `end`; does nothing without OpenTelemetry."""

    def __init__(self, about: Mapping[str, object]) -> None:
        self._span: Any = None
        if trace is not None:  # type: ignore[redundant-expr]
            self._span = trace.get_tracer("rse-transcribe").start_span("session")
        self._add(about)

    def end(self, about: Mapping[str, object], failed: bool) -> None:
        self._add(about)
        if self._span:
            if failed:
                self._span.set_status(trace.StatusCode.ERROR)
            self._span.end()

    def _add(self, about: Mapping[str, object]) -> None:
        for name, value in about.items():
            if self._span and value is not None:
                plain = isinstance(value, str | bool | int | float)
                self._span.set_attribute(f"rse.{name}", value if plain else str(value))


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
