"""Fuzz test of live sessions: clients send any messages in any order.

The sessions use no sockets and no server process, so that thousands run per minute.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from service.app import load
from service.live import websocket
from service.protocol.errors import CloseCode, ErrorCode
from service.protocol.server_messages import ServerMessage
from service.settings import Settings
from tests.fakes import FAKE_PITCHES, FakeTranscriber, play
from tests.fuzz.conftest import inputs
from tests.service.apps import app_with, check_notes, converse

RATE_HZ = 22_050
MAX_MESSAGE_BYTES = 16_384
SERVER_MESSAGE: TypeAdapter[Any] = TypeAdapter(ServerMessage)
# No client message may cause these errors. Every client here reads fast enough.
SERVER_FAULTS = {ErrorCode.INTERNAL, ErrorCode.SLOW_READER}
DTYPES = {"pcm_s16le": "<i2", "pcm_f32le": "<f4"}

STARTS = st.fixed_dictionaries(
    {
        "type": st.just("start"),
        "encoding": st.sampled_from(list(DTYPES)),
        "sample_rate": st.just(RATE_HZ),
        "channels": st.integers(1, 2),
    },
    optional={
        "mode": st.just("block"),
        "lookahead_ms": st.floats(0.001, 1e300),
        "block_frames": st.integers(1, 32),
        "model": st.just("fake"),
        "frames": st.booleans(),
    },
)
INVALID_TEXT = st.text(max_size=30) | st.sampled_from(['{"type":"ready"}', "{}", "[]", "null"])
TONES = st.tuples(st.sampled_from(FAKE_PITCHES), st.floats(0.001, 0.15), st.floats(0, 0.4))
KINDS = ["start", "flush", "keepalive", "stop", *4 * ["tone"], "not finite", "invalid", "too big"]


@dataclass
class Client:
    """Messages of a client, and the state of its session after them."""

    messages: list[str | bytes] = field(default_factory=list)
    start: dict[str, Any] | None = None
    audio_bytes: int = 0
    flushes: list[str] = field(default_factory=list)
    end: str | None = None  # "stop", or the code of the first error

    @property
    def samples(self) -> tuple[int, int]:
        """Number of complete PCM frames sent, and of bytes of an incomplete PCM frame."""
        assert self.start is not None
        size = np.dtype(DTYPES[self.start["encoding"]]).itemsize * int(self.start["channels"])
        return divmod(self.audio_bytes, size)

    def append_message(self, kind: str, draw: st.DrawFn) -> None:
        """Append a message, and set ``end`` if the server ends the session at this message."""
        start = self.start
        match kind:
            case _ if self.end is not None:
                self.messages.append(draw(st.text(max_size=10) | st.binary(max_size=10)))
            case "start":
                new_start = draw(STARTS)
                self.messages.append(json.dumps(new_start))
                self.start = start or new_start
                self.end = ErrorCode.ALREADY_STARTED if start else None
            case "invalid":
                self.messages.append(draw(INVALID_TEXT))
                self.end = ErrorCode.BAD_MESSAGE
            case "too big":
                self.messages.append(bytes(MAX_MESSAGE_BYTES + 1))
                self.end = ErrorCode.MESSAGE_TOO_BIG
            case _ if start is None:
                self.messages.append(draw(st.binary(max_size=40) | st.just('{"type": "stop"}')))
                self.end = ErrorCode.NOT_STARTED
            case "flush":
                self.flushes.append(draw(st.text(max_size=128)))
                self.messages.append(json.dumps({"type": "flush", "id": self.flushes[-1]}))
            case "keepalive" | "stop":
                self.messages.append(json.dumps({"type": kind}))
                if kind == "stop":
                    self.end = ErrorCode.ODD_BYTES if self.samples[1] else "stop"
            case "tone" if not self.samples[1]:  # Misaligned floats would have arbitrary values.
                pitch, length_s, level = draw(TONES)
                samples = play([(pitch, 0.0, length_s)], length_s, RATE_HZ, level)
                samples = np.repeat(samples, start["channels"])
                scale = 32767 if start["encoding"] == "pcm_s16le" else 1
                data = (samples * scale).astype(DTYPES[start["encoding"]]).tobytes()
                data = data[:MAX_MESSAGE_BYTES]
                self.messages.append(data[: len(data) - draw(st.integers(0, 8))])
                self.audio_bytes += len(self.messages[-1])
            case "not finite" if start["encoding"] == "pcm_f32le" and not self.samples[1]:
                value = draw(st.sampled_from([np.nan, np.inf, -np.inf, 65.0]))
                self.messages.append(np.full(8, value, "<f4").tobytes())
                self.end = ErrorCode.BAD_AUDIO


@st.composite
def clients(draw: st.DrawFn) -> Client:
    client = Client()
    first = ["start"] if draw(st.integers(0, 4)) else []
    for kind in first + draw(st.lists(st.sampled_from(KINDS), max_size=12)):
        client.append_message(kind, draw)
    return client


def check(client: Client, messages: list[dict[str, Any]], code: int) -> None:
    """Assert that the messages and the close code are correct for what the client sent."""
    assert [message["seq"] for message in messages] == list(range(len(messages)))
    for message in messages:
        SERVER_MESSAGE.validate_python(message)
    errors = [message["code"] for message in messages if message["type"] == "error"]
    assert not SERVER_FAULTS & set(errors)
    if client.end is None:
        assert (errors, code) == ([], 1006)  # The client disconnected.
        return
    assert errors == ([] if client.end == "stop" else [client.end])
    if client.end == "stop":
        assert code == CloseCode.NORMAL
    else:
        assert code == ErrorCode[client.end.upper()].close_code
    if client.start is None:
        assert [message["type"] for message in messages] == ["error"]
        return
    done = messages[-1]
    assert messages[0]["type"] == "ready"
    assert done["type"] == "done"
    assert done["reason"] == ("stop" if client.end == "stop" else "error")
    assert done["totals"]["received_samples"] == client.samples[0]
    flushed = [message["id"] for message in messages if message["type"] == "flushed"]
    assert flushed == client.flushes
    assert len(check_notes(messages)) == done["totals"]["notes"]


@pytest.mark.timeout(3600)
def test_every_session_ends_as_the_protocol_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.live.session.MAX_MESSAGE_BYTES", MAX_MESSAGE_BYTES)
    monkeypatch.setattr(websocket, "MAX_PACE", 1000.0)
    model = FakeTranscriber()
    settings = Settings(allowed_hosts=("testserver",), max_sessions=10)
    app = app_with(lambda name, device: model, settings)
    state = app.state.service

    with asyncio.Runner() as runner:
        runner.run(load(state))

        @inputs(min_count=60, share=0.02)
        @given(clients())
        def run_session(client: Client) -> None:
            session = converse(app, *client.messages, disconnects=client.end is None)
            check(client, *runner.run(session))
            assert state.sessions.count == 0

        try:
            run_session()
        finally:
            runner.run(state.pool.close())
