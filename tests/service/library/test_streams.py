"""``Stream`` gives the events of the websocket, in blocks of any length."""

import asyncio

import numpy as np
import pytest

from rse_transcribe import Stream
from service.notes.events import Event
from tests.fakes import FakeTranscriber
from tests.service.apps import PITCHES, RATE_HZ, melody, pcm16, serving, transcribe


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
        told = transcribe(client)
    events = listen(1000, np.frombuffer(pcm16(melody()), "<i2"))
    assert [event.kind for event in events] == [message["type"] for message in told]
    for event, message in zip(events, told, strict=True):
        fields = message.keys() - {"seq", "type"}
        assert {name: getattr(event, name) for name in fields} == {
            name: message[name] for name in fields
        }


@pytest.mark.parametrize("block", [160, 4096, 100_000])
def test_events_do_not_depend_on_blocks(block: int) -> None:
    assert listen(block) == listen(1000)


def test_stereo_is_mixed() -> None:
    assert listen(1000, np.stack([melody()] * 2, axis=1)) == listen(1000)


def test_within_a_running_event_loop() -> None:
    async def cell() -> list[Event]:
        return listen(1000)

    assert asyncio.run(cell()) == listen(1000)


def test_it_states_its_delay() -> None:
    with Stream(RATE_HZ, model=FakeTranscriber(), lookahead_ms=100, block_frames=1) as short:
        with Stream(RATE_HZ, model=FakeTranscriber(), lookahead_ms=200, block_frames=8) as long:
            assert 100 < short.note_on_delay_ms < long.note_on_delay_ms - 100


def test_a_finished_stream_takes_no_more() -> None:
    stream = Stream(RATE_HZ, model=FakeTranscriber())
    stream.finish()
    with pytest.raises(RuntimeError, match="finished"):
        stream.push(melody())
    stream.close()
    stream.close()
    with pytest.raises(RuntimeError):
        stream.push(melody())


def test_bad_options_get_one_clear_error() -> None:
    with pytest.raises(ValueError, match="sample_rate must be"):
        Stream(100, model=FakeTranscriber())
    with pytest.raises(ValueError, match="block_frames must be"):
        Stream(RATE_HZ, model=FakeTranscriber(), block_frames=0)
