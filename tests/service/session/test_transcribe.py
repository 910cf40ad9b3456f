"""Recordings: the same notes as a live stream of the same audio, in bounded memory."""

import asyncio
import io
import threading
import tracemalloc
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HOP
from service.audio import decode
from service.engine.engine import Engine
from service.notes.events import Event, NoteEvent
from service.notes.score import midi_file
from service.protocol.options import FILE_OPTIONS, Mode, StreamOptions
from service.session import transcribe
from service.session.transcribe import FileProgress, Performance, transcribe_file
from tests.fakes import FAKE_RATE_HZ, play
from tests.service.apps import sound_file
from tests.service.sessions import MELODY, listen, pcm, to_bytes

RATE_HZ = 44_100
Items = list[Event | FileProgress | Performance]


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_BLOCK_SAMPLES", 10_000)


def wav(samples: NDArray[np.float32], subtype: str = "FLOAT") -> io.BytesIO:
    return io.BytesIO(sound_file(samples, "WAV", subtype, RATE_HZ))


async def collect(file: io.BytesIO, engine: Engine, options: StreamOptions = FILE_OPTIONS) -> Items:
    return [item async for item in transcribe_file(file, engine, options)]


def events_of(items: Items) -> list[Event]:
    return [item for item in items if isinstance(item, NoteEvent)]


@pytest.mark.parametrize("options", [FILE_OPTIONS, *(StreamOptions(mode=mode) for mode in Mode)])
def test_a_file_gives_the_events_of_a_live_stream(engine: Engine, options: StreamOptions) -> None:
    samples, audio = play(MELODY, 2.0, RATE_HZ), pcm(RATE_HZ)
    events = events_of(asyncio.run(collect(wav(samples), engine, options)))
    assert len(events) == 2 * len(MELODY)
    assert events == listen(engine, to_bytes(samples, audio), audio, options, [3_001])[0]


async def test_progress_then_the_performance(engine: Engine) -> None:
    items = await collect(wav(play(MELODY, 6.0, RATE_HZ)), engine)
    done = [item.fraction or 0.0 for item in items if isinstance(item, FileProgress)]
    assert len(done) > 20
    assert done == sorted(done)
    assert 0 <= done[0] < done[-1] <= 1
    *_, performance = items
    assert isinstance(performance, Performance)
    assert performance.totals.audio_s == 6.0
    assert performance.totals.frames == -(-6 * FAKE_RATE_HZ // HOP)
    assert len(performance.notes) == performance.totals.notes == len(MELODY)
    assert performance.midi == midi_file(performance.notes)


async def test_notes_come_before_the_file_has_been_read(engine: Engine) -> None:
    file = wav(play(MELODY, 30.0, RATE_HZ))
    async with aclosing(transcribe_file(file, engine)) as items:
        async for item in items:
            if isinstance(item, NoteEvent):
                break
    assert file.tell() < len(file.getbuffer()) / 4
    assert not file.closed


def test_memory_does_not_grow_with_the_length(engine: Engine) -> None:
    def peak_bytes(seconds: float) -> int:
        file = wav(play(MELODY, seconds, RATE_HZ), "PCM_16")
        tracemalloc.start()
        try:
            asyncio.run(collect(file, engine))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(5.0)  # what is allocated once
    # 45 seconds of samples are 7.9 MB; garbage that is not yet collected is far below 1 MB.
    assert peak_bytes(60.0) < peak_bytes(15.0) + 1_000_000


async def test_a_cancelled_opening_releases_the_file(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on = threading.Event(), threading.Event()

    class SlowDecoder(decode.AudioDecoder):
        def __init__(self, *arguments: Any) -> None:
            opening.set()
            assert go_on.wait(60)
            super().__init__(*arguments)

    monkeypatch.setattr(transcribe, "AudioDecoder", SlowDecoder)
    file = wav(play(MELODY, 1.3, RATE_HZ))
    reading = asyncio.create_task(collect(file, engine))
    try:
        assert await asyncio.to_thread(opening.wait, 60)
        reading.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
    finally:
        go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    file.close()  # libsndfile would read it still, and fail where nobody can catch it
