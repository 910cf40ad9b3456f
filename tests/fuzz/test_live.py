"""Sessions of clients that say anything in any order: a state machine, and what it foretells.

No sockets and no server between: thousands of sessions a minute.
"""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from pydantic import TypeAdapter

from service.app import load
from service.live import websocket
from service.protocol.faults import CloseCode, ErrorCode
from service.protocol.server_messages import ServerMessage
from service.settings import Settings
from tests.fakes import FAKE_PITCHES, FakeTranscriber, play
from tests.fuzz.conftest import inputs
from tests.service.apps import app_with, check_notes, converse

RATE_HZ = 22_050
MOST_BYTES = 16_384
SERVER_MESSAGE: TypeAdapter[Any] = TypeAdapter(ServerMessage)
# Whatever a client does, these are faults of ours; the last one of a client that does not read.
NEVER = {ErrorCode.INTERNAL, ErrorCode.SLOW_READER}
DTYPES = {"pcm_s16le": "<i2", "pcm_f32le": "<f4"}


class Service:
    """An application on a model of pure tones, with an event loop of its own."""

    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        model = FakeTranscriber()
        chosen = Settings(allowed_hosts=("testserver",), max_sessions=10, **settings)
        self.app = app_with(lambda name, device: model, chosen)
        self.state = self.app.state.service
        self._runner.run(load(self.state, None))

    def converse(self, *sent: str | bytes) -> tuple[list[dict[str, Any]], int]:
        """One session: everything it says, and the code of the close."""
        return self._runner.run(converse(self.app, *sent))

    def close(self) -> None:
        self._runner.run(self.state.pool.close())
        self._runner.close()


service: Service


class Client(RuleBasedStateMachine):
    """Collects what a client says and foretells how the session ends; at its end it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str | bytes] = []
        self.start: dict[str, Any] | None = None
        self.audio_bytes = 0
        self.flushes: list[str] = []
        self.end: str | None = None  # `stop`, or the code of the error

    def say(self, message: dict[str, Any]) -> None:
        self.said.append(json.dumps(message))

    def fail(self, code: ErrorCode) -> None:
        """The first fault decides; nothing after it is read."""
        self.end = self.end or code

    @precondition(lambda self: self.end is None)
    @rule(
        encoding=st.sampled_from(list(DTYPES)),
        channels=st.integers(1, 2),
        options=st.fixed_dictionaries(
            {},
            optional={
                "mode": st.just("block"),
                "lookahead_ms": st.floats(0.001, 1e300),
                "block_frames": st.integers(1, 32),
                "model": st.just("fake"),
                "frames": st.booleans(),
            },
        ),
    )
    def starts(self, encoding: str, channels: int, options: dict[str, Any]) -> None:
        start = {"type": "start", "encoding": encoding, "sample_rate": RATE_HZ, **options}
        self.say({**start, "channels": channels})
        if self.start is not None:
            self.fail(ErrorCode.ALREADY_STARTED)
        self.start = self.start or {**start, "channels": channels}

    @precondition(lambda self: self.end is None and self.start is not None)
    @rule(
        pitch=st.sampled_from(FAKE_PITCHES),
        length_s=st.floats(0.001, 0.15),
        level=st.floats(0, 0.4),
        cut=st.integers(0, 8),
    )
    def plays(self, pitch: int, length_s: float, level: float, cut: int) -> None:
        assert self.start is not None
        samples = play([(pitch, 0.0, length_s)], length_s, RATE_HZ, level)
        samples = np.repeat(samples, self.start["channels"])
        scale = 32767 if self.start["encoding"] == "pcm_s16le" else 1
        data = (samples * scale).astype(DTYPES[self.start["encoding"]]).tobytes()[:MOST_BYTES]
        if self.audio_bytes % self.sample_bytes == 0:  # floats out of step would be any number
            data = data[: len(data) - cut]
            self.said.append(data)
            self.audio_bytes += len(data)

    @property
    def sample_bytes(self) -> int:
        """Of all channels."""
        assert self.start is not None
        return np.dtype(DTYPES[self.start["encoding"]]).itemsize * int(self.start["channels"])

    @precondition(lambda self: self.end is None and self.start is None)
    @rule(data=st.binary(max_size=40))
    def plays_too_soon(self, data: bytes) -> None:
        self.said.append(data)
        self.fail(ErrorCode.NOT_STARTED)

    @precondition(lambda self: self.end is None)
    @rule(name=st.text(max_size=128))
    def flushes_it(self, name: str) -> None:
        self.say({"type": "flush", "id": name})
        if self.start is None:
            self.fail(ErrorCode.NOT_STARTED)
        else:
            self.flushes.append(name)

    @precondition(lambda self: self.end is None)
    @rule()
    def keeps_alive(self) -> None:
        self.say({"type": "keepalive"})
        if self.start is None:
            self.fail(ErrorCode.NOT_STARTED)

    @precondition(lambda self: self.end is None and self.start is not None)
    @rule(bad=st.sampled_from([np.nan, np.inf, -np.inf, 65.0]))
    def plays_no_numbers(self, bad: float) -> None:
        assert self.start is not None
        if self.start["encoding"] == "pcm_f32le" and self.audio_bytes % self.sample_bytes == 0:
            self.said.append(np.full(8, bad, "<f4").tobytes())
            self.fail(ErrorCode.BAD_AUDIO)

    @precondition(lambda self: self.end is None)
    @rule(text=st.text(max_size=30) | st.sampled_from(['{"type":"ready"}', "{}", "[]", "null"]))
    def babbles(self, text: str) -> None:
        self.said.append(text)
        self.fail(ErrorCode.BAD_MESSAGE)

    @precondition(lambda self: self.end is None)
    @rule(text=st.booleans())
    def says_too_much(self, text: bool) -> None:
        self.said.append("x" * (MOST_BYTES + 1) if text else bytes(MOST_BYTES + 1))
        self.fail(ErrorCode.MESSAGE_TOO_BIG)

    @precondition(lambda self: self.end is None)
    @rule()
    def stops(self) -> None:
        self.say({"type": "stop"})
        if self.start is None:
            self.fail(ErrorCode.NOT_STARTED)
        elif self.audio_bytes % self.sample_bytes:
            self.fail(ErrorCode.ODD_BYTES)
        else:
            self.end = "stop"

    @precondition(lambda self: self.end is not None)
    @rule(more=st.text(max_size=10) | st.binary(max_size=10))
    def goes_on_after_the_end(self, more: str | bytes) -> None:
        self.said.append(more)

    def teardown(self) -> None:
        messages, code = service.converse(*self.said)
        assert [message["seq"] for message in messages] == list(range(len(messages)))
        for message in messages:
            SERVER_MESSAGE.validate_python(message)
        errors = [message["code"] for message in messages if message["type"] == "error"]
        assert not NEVER & set(errors)
        assert service.state.sessions.count == 0
        if self.end is None:
            assert (errors, code) == ([], 1006)  # the client has gone
            return
        assert errors == ([] if self.end == "stop" else [self.end])
        if self.end == "stop":
            assert code == CloseCode.NORMAL
        else:
            assert code == ErrorCode[self.end.upper()].close_code
        if self.start is None:
            assert [message["type"] for message in messages] == ["error"]
            return
        done = messages[-1]
        assert messages[0]["type"] == "ready"
        assert done["type"] == "done"
        assert done["reason"] == ("stop" if self.end == "stop" else "error")
        assert done["totals"]["received_samples"] == self.audio_bytes // self.sample_bytes
        flushed = [message["id"] for message in messages if message["type"] == "flushed"]
        assert flushed == self.flushes
        assert len(check_notes(messages)) == done["totals"]["notes"]


@pytest.mark.timeout(3600)
def test_every_session_ends_as_the_protocol_says(monkeypatch: pytest.MonkeyPatch) -> None:
    global service
    monkeypatch.setattr(websocket, "MAX_MESSAGE_BYTES", MOST_BYTES)
    monkeypatch.setattr(websocket, "MAX_PACE", 1000.0)
    service = Service()
    try:
        run_state_machine_as_test(Client, settings=inputs(few=60, share=0.02))
    finally:
        service.close()
