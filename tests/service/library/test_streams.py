"""``Stream`` gives the events of the websocket, block by block."""

import threading
from typing import Any

import numpy as np
import pytest

from rse_transcribe import Stream
from rse_transcribe import transcribe as transcribe_recording
from service.notes.events import Event
from tests.fakes import FakeTranscriber
from tests.service.apps import PITCHES, RATE_HZ, melody, pcm16, serving, transcribe_melody


def listen(block: int, samples: np.ndarray | None = None) -> list[Event]:
    samples = melody() if samples is None else samples
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        events = [
            event
            for start in range(0, len(samples), block)
            for event in stream.push(samples[start : start + block])
        ]
        events += stream.finish()
        assert stream.finish() == []
        assert [note.pitch for note in stream.notes] == PITCHES
    return events


def test_the_events_are_those_of_the_websocket() -> None:
    with serving() as (client, _):
        reported = transcribe_melody(client)
    events = listen(1000, np.frombuffer(pcm16(melody()), "<i2"))
    assert [event.kind for event in events] == [message["type"] for message in reported]
    for event, message in zip(events, reported, strict=True):
        fields = message.keys() - {"seq", "type"}
        assert {name: getattr(event, name) for name in fields} == {
            name: message[name] for name in fields
        }


def test_it_states_its_delay() -> None:
    with Stream(RATE_HZ, model=FakeTranscriber(), lookahead_ms=100, block_frames=1) as short:
        with Stream(RATE_HZ, model=FakeTranscriber(), lookahead_ms=200, block_frames=8) as long:
            assert 100 < short.note_on_delay_ms < long.note_on_delay_ms - 100


def test_a_finished_or_closed_stream_takes_no_more() -> None:
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        stream.finish()
        with pytest.raises(RuntimeError, match="the stream is finished"):
            stream.push(melody())
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        stream.push(melody())
    for call in (stream.finish, lambda: stream.push(melody())):
        with pytest.raises(RuntimeError, match="the stream is closed"):
            call()


def test_a_forgotten_stream_lets_go_of_its_threads() -> None:
    before = set(threading.enumerate())
    stream = Stream(RATE_HZ, model=FakeTranscriber())
    stream.push(melody())
    begun = set(threading.enumerate()) - before
    assert begun
    del stream
    for thread in begun:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("other", [0, -1, 0.5])
def test_two_channels_are_mixed_as_those_of_a_file(other: float) -> None:
    stereo = np.stack([melody(), other * melody()], axis=1).astype(np.float32)
    whole = transcribe_recording(stereo, RATE_HZ, model=FakeTranscriber())
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        for start in range(0, len(stereo), 700):
            stream.push(stereo[start : start + 700])
        stream.finish()
        heard = [(note.pitch, note.onset_s) for note in stream.notes]
    found = [(note.pitch, note.onset_s) for note in whole.notes]
    # What is silent or reversed is known by the first sound, which a recording waits for.
    assert heard[-2:] == found[-2:]
    assert len(heard) == 3 or other != 0.5
    assert len(found) == 3


def test_a_bad_block_is_not_taken_and_no_sound_ends_the_audio() -> None:
    with Stream(RATE_HZ, model=FakeTranscriber()) as stream:
        with pytest.raises(ValueError, match=r"shape \[n\] or \[n, channels\].*, not \[2, 480\]"):
            stream.push(np.zeros((2, 480)))
        heard = stream.push(melody())
        with pytest.raises(ValueError, match=r"sample \d+ is nan"):
            stream.push([float("nan")])
        with pytest.raises(RuntimeError, match="it can only be finished"):
            stream.push(melody())
        assert heard + stream.finish() == listen(1000)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sample_rate": 100}, "sample_rate must be"),
        ({"block_frames": 2.5}, "block_frames must be a valid integer, .*not 2.5"),
        ({"model": 5}, r"model must be a name, a path or the result of load\(\), not 5"),
    ],
)
def test_bad_options_get_one_clear_error(options: dict[str, Any], complaint: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match=complaint):
        Stream(**{"sample_rate": RATE_HZ, "model": FakeTranscriber(), **options})
    assert set(threading.enumerate()) <= before
