"""A span for each session where a provider is set; nothing where none is."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from service.ops import tracing
from tests.service.apps import START, hear, serving


class Span:
    """Remembers its attributes and events."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self.name, self.attributes, self.ends = name, dict(attributes), 0
        self.status: StatusCode | None = None

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self.attributes |= attributes

    def set_status(self, status: StatusCode) -> None:
        self.status = status

    def end(self) -> None:
        self.ends += 1


class Tracer:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def start_span(self, name: str, attributes: dict[str, Any]) -> Span:
        self.spans.append(Span(name, attributes))
        return self.spans[-1]


def test_a_session_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    with serving() as (client, _):
        with client.websocket_connect("/ws/transcribe") as socket:
            socket.send_text(json.dumps(START))
            ready = socket.receive_json()
            socket.send_bytes(bytes(44_100))
            socket.send_text('{"type": "stop"}')
            hear(socket)
    (span,) = tracer.spans
    assert (span.name, span.ends, span.status) == ("session", 1, None)
    assert span.attributes["rse.session_id"] == ready["session_id"]
    assert span.attributes["rse.sample_rate"] == START["sample_rate"]
    assert span.attributes["rse.reason"] == "stop"
    assert span.attributes["rse.audio_s"] == pytest.approx(1.0)


def test_a_collector_without_the_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://collector:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(RuntimeError, match=r"rse-transcribe\[otel\]"):
        tracing.configure()
    monkeypatch.delenv(tracing.ENDPOINT)
    tracing.configure()
