"""Tests of sessions that resume after a disconnection, on the same server or another."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from model.config import HEADS
from service.protocol.errors import CloseCode
from tests.fakes import FakeTranscriber, play
from tests.service.apps import (
    ADDRESS,
    RATE_HZ,
    check_notes,
    drain,
    of_type,
    pcm16,
    receive_all,
    rejected_start,
    send,
    serving,
    start_session,
    stop,
)

NOTES = [(69, 0.2, 2.9), (81, 0.5, 0.9), (81, 1.0, 1.4), (57, 1.7, 2.1), (81, 2.2, 2.6)]
# The level of the first note fits a viola as well as a violin. The later notes are a violin's.
LEVELS = (0.1545, 0.17, 0.17, 0.2, 0.17)
AUDIO = pcm16(
    np.sum([play([note], 2.8, RATE_HZ, x) for note, x in zip(NOTES, LEVELS, strict=True)], axis=0)
)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[TestClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving(FakeTranscriber(HEADS))) for _ in range(2)]


class ResumingClient:
    """Client that resumes as PROTOCOL.md requires."""

    def __init__(self, **options: Any) -> None:
        self.options = {"updates": True, **options}
        self.frames: set[int] = set()
        self.events: list[dict[str, Any]] = []
        self.ready: dict[str, Any] = {}
        self.checkpoint: dict[str, Any] | None = None
        self.known_events = 0

    def handle(self, message: dict[str, Any]) -> None:
        if message["type"] in ("note_on", "note_off", "note_update", "pedal"):
            self.events.append({**message, "seq": 0})
            self.known_events += 1
        elif message["type"] == "frames":
            self.frames |= set(range(message["frame"], message["frame"] + message["count"]))
        elif "checkpoint" in message:
            self.checkpoint = message["checkpoint"]
            self.known_events = 0

    def start(self) -> dict[str, Any]:
        if self.checkpoint is None:
            return self.options
        effective = {name: self.ready[name] for name in ("mode", "lookahead_ms", "block_frames")}
        return {
            **self.options,
            **effective,
            "resume": {**self.checkpoint, "known_events": self.known_events},
        }

    def perform(self, server: TestClient, end: int, received: int | None) -> list[dict[str, Any]]:
        """Send the audio up to byte ``end`` in one session. If ``received`` is a number, disconnect
        after this number of messages. If it is None, end the session and return its messages."""
        with server.websocket_connect(ADDRESS) as socket:
            self.ready = start_session(socket, **self.start())
            # A resumed session repeats the checkpoint, so the events received after it still count.
            if self.checkpoint is None:
                self.handle(self.ready)
            start = 2 * self.ready["checkpoint"]["from_sample"]
            send(socket, AUDIO[start:end])
            if received is None:
                messages, code = stop(socket)
                assert code == CloseCode.NORMAL
                for message in messages:
                    self.handle(message)
                return messages
            socket.send_json({"type": "flush", "id": "all"})
            for _ in range(received):
                message = socket.receive_json()
                if message["type"] == "flushed":
                    break
                self.handle(message)
            return []


@pytest.fixture(scope="module")
def uninterrupted(servers: list[TestClient]) -> ResumingClient:
    client = ResumingClient()
    client.perform(servers[0], len(AUDIO), None)
    return client


@pytest.mark.parametrize(
    ("ends", "received"),
    [
        ([0.5], [0]),
        ([0.95, 0.96], [1_000, 4]),
        ([0.9, 0.5, 0.8, 1.0], [5, 1, 2, 3]),  # the second session sends less audio
    ],
)
def test_resumed_sessions_give_the_events_of_one_session(
    servers: list[TestClient], uninterrupted: ResumingClient, ends: list[float], received: list[int]
) -> None:
    kinds = {event["type"] for event in uninterrupted.events}
    assert kinds == {"note_on", "note_off", "note_update", "pedal"}
    client = ResumingClient()
    for turn, (end, count) in enumerate(zip(ends, received, strict=True)):
        client.perform(servers[turn % 2], int(end * len(AUDIO)) // 2 * 2, count)
    messages = client.perform(servers[len(ends) % 2], len(AUDIO), None)
    assert client.events == uninterrupted.events
    assert len(check_notes(of_type(client.events, "note_on", "note_off"))) == len(NOTES)
    totals = messages[-1]["totals"]
    assert totals["notes"] == len(NOTES)
    assert totals["received_samples"] == len(AUDIO) // 2
    assert totals["audio_s"] == pytest.approx(2.8)


def test_resumed_anytime_session_sends_every_frame(servers: list[TestClient]) -> None:
    client = ResumingClient(mode="anytime", frames=True)
    client.perform(servers[0], len(AUDIO) // 2, 1_000)
    messages = client.perform(servers[1], len(AUDIO), None)
    assert client.frames == set(range(messages[-1]["totals"]["frames"]))


def test_drained_session_resumes_on_another_server(
    servers: list[TestClient], uninterrupted: ResumingClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    client = ResumingClient()
    with (
        serving(FakeTranscriber(HEADS)) as leaving,
        leaving.websocket_connect(ADDRESS) as socket,
    ):
        client.ready = start_session(socket, updates=True)
        client.handle(client.ready)
        send(socket, AUDIO[: len(AUDIO) // 2])
        socket.send_json({"type": "flush", "id": "half"})
        while (message := socket.receive_json())["type"] != "flushed":
            client.handle(message)
        drain(leaving)
        messages, code = receive_all(socket)
    kinds = [message["type"] for message in messages]
    assert code == CloseCode.GOING_AWAY
    for message in messages[: kinds.index("draining")]:
        client.handle(message)
    # The client did not receive the messages after `draining`.
    assert of_type(messages[kinds.index("draining") :], "note_off")
    assert client.checkpoint is not None
    resumed_frames = client.checkpoint["frames"]
    *_, done = client.perform(servers[0], len(AUDIO), None)
    assert client.events == uninterrupted.events
    # The log has only the frames of the second session.
    closed = [vars(r)["fields"] for r in caplog.records if r.getMessage() == "session closed"]
    assert closed[-1]["frames"] == done["totals"]["frames"] - resumed_frames


NOTE = {"note_id": 0, "pitch": 69, "velocity": 80, "confidence": 0.9, "frame": 3, "time_s": 0.03}


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        ({"frames": 401}, "401 frames are not a multiple of block_frames, 4"),
        ({"frames": 2**53}, "more than 7 days"),  # its MIDI file would need all memory
        ({"frames": 4, "notes": 2**53}, "notes cannot start in 4 frames"),
        ({"frames": 4, "from_sample": 1}, "from_sample is 1, but .* from sample 0 on"),
        ({"frames": 4, "notes": 0, "sounding": [NOTE]}, "not among the 0 notes"),
        ({"frames": 0, "notes": 1, "sounding": [NOTE]}, "in the 0 frames"),
        (
            {"frames": 4, "notes": 1, "sounding": [{**NOTE, "time_s": 1e300}]},
            "starts at 1e\\+300 s, after the checkpoint.s 4 frames",
        ),
        ({"frames": 4, "notes": 2, "sounding": [NOTE, {**NOTE, "note_id": 1}]}, "the same pitch"),
        ({"frames": 4, "notes": 2, "sounding": [NOTE, {**NOTE, "pitch": 70}]}, "same note_id"),
        ({"frames": 4, "curves": {n: {"frame": 0} for n in range(129)}}, "curves .*128"),
        ({"frames": 4, "free": {128: 0}}, "free.128"),
        ({"frames": 4, "free": {n: 0 for n in range(128, 20_000)}}, "free.128"),
        ({"frames": 4, "belief": {"weights": {"kazoo": 1.0}}}, "not kazoo"),
        ({"frames": 4, "belief": {"frame": 2**53 + 1}}, "belief.frame must be"),
    ],
)
def test_invalid_checkpoint_is_rejected_with_the_reason(
    servers: list[TestClient], checkpoint: dict[str, Any], reason: str
) -> None:
    resume = {"session_id": "aa", "from_sample": 0, "notes": 0, "sounding": [], **checkpoint}
    error, code = rejected_start(servers[0], resume=resume)
    assert (error["code"], code) == ("bad_resume", CloseCode.BAD_REQUEST)
    assert re.search(reason, error["message"])
