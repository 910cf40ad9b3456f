"""Tests of the library's ``Stream``."""

import itertools
import threading
from typing import Any, NoReturn

import numpy as np
import pytest

from rse_transcribe import Stream
from rse_transcribe import transcribe as transcribe_recording
from service.engine.local import LocalEngine
from service.notes.events import Event
from service.stream.windows import EngineError
from tests.fakes import FakeTranscriber
from tests.service.apps import (
    PITCHES,
    RATE_HZ,
    melody,
    pcm16,
    perform,
    serving,
    transcribe_melody,
)


def push_blocks(samples: np.ndarray | None = None) -> list[Event]:
    samples = melody() if samples is None else samples
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        events = [
            event
            for start in range(0, len(samples), 1000)
            for event in stream.push(samples[start : start + 1000])
        ]
        events += stream.finish()
        assert stream.finish() == []
        assert [note.pitch for note in stream.notes] == PITCHES
    return events


def test_stream_returns_the_events_of_the_websocket() -> None:
    with serving() as client:
        ready, _ = perform(client, b"")
        reported = transcribe_melody(client)
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        assert stream.note_on_delay_ms == pytest.approx(ready["delay_ms"], abs=1e-3)
    events = push_blocks(np.frombuffer(pcm16(melody()), "<i2"))
    assert [event.kind for event in events] == [message["type"] for message in reported]
    for event, message in zip(events, reported, strict=True):
        fields = message.keys() - {"seq", "type"}
        assert {name: getattr(event, name) for name in fields} == {
            name: message[name] for name in fields
        }


def test_finished_or_closed_stream_rejects_audio() -> None:
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        stream.finish()
        with pytest.raises(RuntimeError, match="the stream is finished"):
            stream.push(melody())
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        stream.push(melody())
    for call in (stream.finish, lambda: stream.push(melody())):
        with pytest.raises(RuntimeError, match="the stream is closed"):
            call()


def test_garbage_collected_stream_ends_its_threads() -> None:
    before = set(threading.enumerate())
    stream = Stream(RATE_HZ, model=FakeTranscriber())
    stream.push(melody())
    started = set(threading.enumerate()) - before
    assert started
    del stream
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("other", [0, -1, 0.5])
def test_stereo_is_mixed_as_in_a_recording(other: float) -> None:
    stereo = np.stack([melody(), other * melody()], axis=1).astype(np.float32)
    expected = transcribe_recording(stereo, RATE_HZ, model=FakeTranscriber())
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        for start in range(0, len(stereo), 700):
            stream.push(stereo[start : start + 700])
        stream.finish()
        streamed = [(note.pitch, note.onset_s) for note in stream.notes]
    recorded = [(note.pitch, note.onset_s) for note in expected.notes]
    # A recording is mixed with knowledge of its first sound. A stream may miss the first note if a
    # channel is silent or inverted.
    assert streamed[-2:] == recorded[-2:]
    assert len(streamed) == 3 or other != 0.5
    assert len(recorded) == 3


@pytest.mark.parametrize("value", [float("nan"), 100.0])
def test_invalid_sample_of_one_channel_is_rejected(value: float) -> None:
    block = np.zeros((20_000, 2))
    block[15_000, 1] = value
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        with pytest.raises(ValueError, match=f"sample 15000 is {value:g}"):
            stream.push(block)
        stream.finish()
        assert stream._stream.totals.received_samples == 15_000


def test_bad_block_is_rejected_and_nan_ends_the_audio() -> None:
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        with pytest.raises(ValueError, match=r"shape \[n\] or \[n, channels\].*, not \[2, 480\]"):
            stream.push(np.zeros((2, 480)))
        events = stream.push(melody())
        with pytest.raises(ValueError, match=r"sample \d+ is nan"):
            stream.push([float("nan")])
        with pytest.raises(RuntimeError, match="it can only be finished"):
            stream.push(melody())
        assert events + stream.finish() == push_blocks()


@pytest.mark.parametrize("error", [EngineError, KeyboardInterrupt])
@pytest.mark.parametrize("call", ["push", "finish"])
def test_finish_after_a_failure_only_ends_sounding_notes(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], call: str
) -> None:
    def fail_once(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise error

    first, rest = np.split(melody(), [int(0.5 * RATE_HZ)])  # the first note is sounding
    if call == "finish":
        first, rest = np.concatenate([first, rest]), rest[:0]
    expected = [event for event in push_blocks() if event.time_s < len(first) / RATE_HZ]
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        events = stream.push(first)
        monkeypatch.setattr(LocalEngine, "compute", fail_once)
        with pytest.raises(error):
            stream.push(rest) if len(rest) else stream.finish()
        with pytest.raises(RuntimeError, match="it can only be finished"):
            stream.push(first)
        last = stream.finish()
        assert stream.finish() == []
    assert events == expected[: len(events)]
    assert [event.kind for event in events + last] == ["note_on", "note_off"] * len(stream.notes)
    assert last[0].time_s <= len(first) / RATE_HZ


def test_events_of_a_failed_block_are_returned_by_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    compute, calls = LocalEngine.compute, itertools.count()

    def fail_late(engine: LocalEngine, *arguments: Any) -> Any:
        if next(calls) == 100:
            raise EngineError("no memory")
        return compute(engine, *arguments)

    monkeypatch.setattr(LocalEngine, "compute", fail_late)
    with Stream(RATE_HZ, model=FakeTranscriber(), block_frames=1) as stream:
        with pytest.raises(EngineError):
            stream.push(np.tile(melody(), 8))
        events = stream.finish()
    assert [event.kind for event in events] == ["note_on", "note_off"] * len(stream.notes)
    assert events


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_rate": 100}, "sample_rate must be"),
        ({"block_frames": 2.5}, "block_frames must be a valid integer, .*not 2.5"),
        ({"model": 5}, r"model must be a name, a path or the result of load\(\), not 5"),
    ],
)
def test_bad_options_raise_a_clear_error(options: dict[str, Any], message: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match=message):
        Stream(**{"sample_rate": RATE_HZ, "model": FakeTranscriber(), **options})
    assert set(threading.enumerate()) <= before
