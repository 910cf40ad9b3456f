"""Resuming over the wire: cut after any message, on this server or another, nothing is missing."""

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
# The first could be a viola as well as a violin, to which those after it belong.
LEVELS = (0.1545, 0.17, 0.17, 0.2, 0.17)
AUDIO = pcm16(
    np.sum([play([note], 2.8, RATE_HZ, x) for note, x in zip(NOTES, LEVELS, strict=True)], axis=0)
)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[TestClient]]:
    with ExitStack() as stack:
        models = [FakeTranscriber(HEADS) for _ in range(2)]
        yield [stack.enter_context(serving(m))[0] for m in models]


class Performer:
    """A client that keeps to PROTOCOL.md's way to resume."""

    def __init__(self, **asked: Any) -> None:
        self.asked = {"updates": True, **asked}
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
            return self.asked
        kept = {name: self.ready[name] for name in ("mode", "lookahead_ms", "block_frames")}
        return {
            **self.asked,
            **kept,
            "resume": {**self.checkpoint, "known_events": self.known_events},
        }

    def perform(self, server: TestClient, end: int, received: int | None) -> list[dict[str, Any]]:
        """Send up to byte ``end`` on one socket and return its messages. The connection breaks
        after ``received`` messages; None: it ends regularly."""
        with server.websocket_connect(ADDRESS) as socket:
            self.ready = start_session(socket, **self.start())
            # A resumed session repeats the checkpoint: what was received after it still counts.
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
def whole(servers: list[TestClient]) -> Performer:
    performer = Performer()
    performer.perform(servers[0], len(AUDIO), None)
    return performer


@pytest.mark.parametrize(
    ("ends", "received"),
    [
        ([0.5], [0]),
        ([0.95, 0.96], [1_000, 4]),
        ([0.9, 0.5, 0.8, 1.0], [5, 1, 2, 3]),  # the second comes back to less audio
    ],
)
def test_the_union_of_the_events_is_that_of_one_session(
    servers: list[TestClient], whole: Performer, ends: list[float], received: list[int]
) -> None:
    kinds = {event["type"] for event in whole.events}
    assert kinds == {"note_on", "note_off", "note_update", "pedal"}
    performer = Performer()
    for turn, (end, count) in enumerate(zip(ends, received, strict=True)):
        performer.perform(servers[turn % 2], int(end * len(AUDIO)) // 2 * 2, count)
    messages = performer.perform(servers[len(ends) % 2], len(AUDIO), None)
    assert performer.events == whole.events
    assert len(check_notes(of_type(performer.events, "note_on", "note_off"))) == len(NOTES)
    totals = messages[-1]["totals"]
    assert totals["notes"] == len(NOTES)
    assert totals["received_samples"] == len(AUDIO) // 2
    assert totals["audio_s"] == pytest.approx(2.8)


def test_no_frame_is_missing_where_frames_wait_for_their_look_ahead(
    servers: list[TestClient],
) -> None:
    performer = Performer(mode="anytime", frames=True)
    performer.perform(servers[0], len(AUDIO) // 2, 1_000)
    messages = performer.perform(servers[1], len(AUDIO), None)
    assert performer.frames == set(range(messages[-1]["totals"]["frames"]))


def test_a_drained_session_goes_on_elsewhere(servers: list[TestClient], whole: Performer) -> None:
    performer = Performer()
    with (
        serving(FakeTranscriber(HEADS)) as (leaving, _),
        leaving.websocket_connect(ADDRESS) as socket,
    ):
        performer.ready = start_session(socket, updates=True)
        performer.handle(performer.ready)
        send(socket, AUDIO[: len(AUDIO) // 2])
        socket.send_json({"type": "flush", "id": "half"})
        while (message := socket.receive_json())["type"] != "flushed":
            performer.handle(message)
        drain(leaving)
        messages, code = receive_all(socket)
    kinds = [message["type"] for message in messages]
    assert code == CloseCode.GOING_AWAY
    for message in messages[: kinds.index("draining")]:
        performer.handle(message)
    assert of_type(
        messages[kinds.index("draining") :], "note_off"
    )  # its note_off was in the lost messages
    performer.perform(servers[0], len(AUDIO), None)
    assert performer.events == whole.events


NOTE = {"note_id": 0, "pitch": 69, "velocity": 80, "confidence": 0.9, "frame": 3, "time_s": 0.03}


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"frames": 401}, "401 frames are not a multiple of block_frames, 4"),
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
        ({"frames": 4, "belief": {"weights": {"kazoo": 1.0}}}, "not kazoo"),
        ({"frames": 4, "belief": {"frame": 2**53 + 1}}, "belief.frame must be"),
    ],
)
def test_a_point_that_cannot_be_is_refused_in_words(
    servers: list[TestClient], point: dict[str, Any], words: str
) -> None:
    resume = {"session_id": "aa", "from_sample": 0, "notes": 0, "sounding": [], **point}
    error, code = rejected_start(servers[0], resume=resume)
    assert (error["code"], code) == ("bad_resume", CloseCode.BAD_REQUEST)
    assert re.search(words, error["message"])
