"""Tests of live sessions in a worker, without a worker and a clock."""

import json
from time import monotonic

import pytest

from model.config import HEADS
from service.engine.local import LocalEngine
from service.notes.tracker_settings import TrackerSettings
from service.stream import ending
from service.stream.session import LiveSession
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.service.apps import pcm16
from tests.service.streams import random_performance
from tests.service.workers.sessions import OVERLOAD_LAG_S, open_command

CHUNK_S = 0.1
CHUNK_SAMPLES = round(CHUNK_S * FAKE_RATE_HZ)


class Performance:
    """A session and its audio, in chunks of CHUNK_S."""

    def __init__(self, engine: LocalEngine, duration_s: float) -> None:
        self.session = LiveSession(open_command(FAKE_RATE_HZ), engine.config, TrackerSettings())
        self._engine = engine
        self._features = engine.open_stream()
        self._data = pcm16(random_performance(FAKE_RATE_HZ, 7, duration_s))
        self.start_s = monotonic()
        self._messages: list[str] = []

    def feed(self, chunk: int, now_s: float) -> None:
        begin = 2 * CHUNK_SAMPLES * chunk
        self.session.feed(self._data[begin : begin + 2 * CHUNK_SAMPLES], now_s)

    def compute(self, now_s: float) -> bool:
        """Compute one window. Return True if it was wide."""
        wide = self.session.is_catching_up(now_s)
        due = self.session.stream.next_windows(1, wide=wide)
        assert due is not None
        self.session.process_predictions(self._engine.compute(self._features, due))
        return wide

    def messages(self, kind: str) -> list[dict[str, object]]:
        """Return all messages of a kind so far."""
        if (output := self.session.collect_output(monotonic())) is not None:
            self._messages += output.messages
        return [m for m in map(json.loads, self._messages) if m["type"] == kind]


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine(FakeTranscriber(HEADS))


def test_late_session_catches_up_with_wide_windows_and_one_warning(engine: LocalEngine) -> None:
    performance = Performance(engine, 12.0)
    session, widths, max_behind_s = performance.session, [], 0.0
    for chunk in range(100):
        now_s = performance.start_s + CHUNK_S * (chunk + 1)
        performance.feed(chunk, now_s)
        if session.stream.pending_windows:  # 10 windows per second, of the 22 that are required
            widths.append(performance.compute(now_s))
        max_behind_s = max(max_behind_s, session.stream.behind_ms / 1000)
    assert {True, False} == set(widths)
    assert OVERLOAD_LAG_S - 0.2 < max_behind_s < OVERLOAD_LAG_S + 0.2
    (warning,) = performance.messages("warning")
    assert warning["code"] == "overloaded"


def test_audio_faster_than_real_time_is_not_late(engine: LocalEngine) -> None:
    performance = Performance(engine, 6.0)
    for chunk in range(50):
        performance.feed(chunk, performance.start_s + 0.01 * chunk)
    # After 1 s, real-time playback is at 1 s. 5 s have arrived, and none of them is computed.
    assert not performance.session.is_catching_up(performance.start_s + 1.0)
    assert performance.session.is_catching_up(performance.start_s + 1.0 + OVERLOAD_LAG_S)


def test_long_messages_in_real_time_are_not_late(engine: LocalEngine) -> None:
    performance, chunks = Performance(engine, 8.0), round(2.0 / CHUNK_S)
    for message in range(4):
        now_s = performance.start_s + 2.0 * (message + 1)
        begin = 2 * CHUNK_SAMPLES * chunks * message
        performance.session.feed(
            performance._data[begin : begin + 2 * CHUNK_SAMPLES * chunks], now_s
        )
        while performance.session.stream.pending_windows:
            assert not performance.compute(now_s)


def test_progress_is_reported_during_silence(engine: LocalEngine) -> None:
    performance = Performance(engine, 0.0)
    session = performance.session
    session.feed(bytes(2 * FAKE_RATE_HZ), performance.start_s)
    while session.stream.pending_windows:
        performance.compute(performance.start_s)
    output = session.collect_output(performance.start_s + 0.5)
    assert output is not None
    progress = json.loads(output.messages[-1])
    assert (progress["type"], progress["frames"]) == ("progress", session.stream.frames)


def test_flush_is_acknowledged_after_wide_windows(engine: LocalEngine) -> None:
    performance = Performance(engine, 3.0)
    for chunk in range(20):
        performance.feed(chunk, performance.start_s + CHUNK_S * (chunk + 1))
    performance.session.flush("end")
    late_s = performance.start_s + 10.0
    widths = []
    while performance.session.stream.pending_windows:
        assert not performance.messages("flushed")
        widths.append(performance.compute(late_s))
    assert True in widths
    assert [m["id"] for m in performance.messages("flushed")] == ["end"]


def test_reason_of_the_end_is_sent_before_the_last_windows(engine: LocalEngine) -> None:
    performance = Performance(engine, 2.0)
    for chunk in range(15):
        performance.feed(chunk, performance.start_s)
    performance.session.end("draining", None)
    assert performance.session.stream.pending_windows
    assert performance.messages("draining")
    assert not performance.messages("done")
    while performance.session.stream.pending_windows:
        performance.compute(performance.start_s)
    assert performance.messages("done")


def test_file_of_a_long_session_can_be_written_elsewhere(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = []
    for max_notes in (ending.MAX_SHORT_NOTES, 0):
        monkeypatch.setattr(ending, "MAX_SHORT_NOTES", max_notes)
        performance = Performance(engine, 4.0)
        for chunk in range(40):
            performance.feed(chunk, performance.start_s)
        performance.session.end("stop", None)
        while performance.session.stream.pending_windows:
            performance.compute(performance.start_s)
        output = performance.session.collect_output(monotonic())
        assert output is not None
        outputs.append(output)
    short, long = outputs
    assert short.note_ons
    assert short.ending is None
    assert long.ending is not None
    assert [*long.messages, ending.pickled_done(long.ending)] == short.messages
