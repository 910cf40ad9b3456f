"""A span for each session where a provider is set; nothing where none is."""

import sys
from unittest.mock import Mock

import pytest
from opentelemetry import trace

from service.ops import tracing
from tests.service.apps import START, perform, serving


def test_a_session_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Mock()
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    with serving() as (client, _):
        ready, _ = perform(client, bytes(44_100))
    tracer.start_span.assert_called_once_with("session")
    span = tracer.start_span.return_value
    span.end.assert_called_once_with()
    attributes = dict(call.args for call in span.set_attribute.call_args_list)
    assert attributes["rse.session_id"] == ready["session_id"]
    assert attributes["rse.sample_rate"] == START["sample_rate"]
    assert attributes["rse.reason"] == "stop"
    assert attributes["rse.audio_s"] == pytest.approx(1.0)


def test_a_collector_without_the_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://collector:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(RuntimeError, match=r"rse-transcribe\[otel\]"):
        tracing.configure()
    monkeypatch.delenv(tracing.ENDPOINT)
    tracing.configure()
