"""A span for each session where a provider is set; nothing where none is."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace

from service.ops import tracing
from tests.service.apps import START, serving, stop


class Span:
    """Remembers its attributes."""

    def __init__(self, name: str) -> None:
        self.name, self.ends = name, 0
        self.attributes: dict[str, Any] = {}

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def end(self) -> None:
        self.ends += 1


def test_a_session_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[Span] = []

    def start_span(name: str) -> Span:
        spans.append(Span(name))
        return spans[-1]

    tracer = SimpleNamespace(start_span=start_span)
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    with serving() as (client, _):
        with client.websocket_connect("/ws/transcribe") as socket:
            socket.send_text(json.dumps(START))
            ready = socket.receive_json()
            socket.send_bytes(bytes(44_100))
            stop(socket)
    (span,) = spans
    assert (span.name, span.ends) == ("session", 1)
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
