"""Sessions: the events depend on the audio alone, and come within the stated delay."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HEADS, HOP, PITCHES, WINDOW
from service.engine.batching import Priority
from service.engine.engine import Engine
from service.notes.events import Event
from service.protocol.options import Encoding, StreamOptions
from service.session.session import SessionStateError, TranscriptionSession
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.sessions import (
    FRAME_S,
    MELODY,
    OPTIONS,
    found,
    listen,
    pcm,
    performance,
    to_bytes,
)

RATES_HZ = [8_000, FAKE_RATE_HZ, 12_345, 16_000, 44_100, 48_000, 96_000, 192_000]


@pytest.fixture(scope="module")
def listening_engine() -> Iterator[Engine]:
    """With a model that tells instruments and the pedal as well."""
    with Engine(FakeTranscriber(HEADS)) as engine:
        yield engine


def reported(
    engine: Engine, samples: NDArray[np.float32], rate_hz: int, options: StreamOptions
) -> list[tuple[Event, int]]:
    """Each event of a stream with the number of samples that it needed; not those of the end."""
    out: list[tuple[Event, int]] = []

    async def run() -> None:
        session = TranscriptionSession(
            engine,
            pcm(rate_hz),
            options,
            on_events=lambda events, needed: out.extend((event, needed) for event in events),
        )
        await session.push_samples(samples)
        session.abort()

    asyncio.run(run())
    return out


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rate_hz", [8_000, 96_000])
def test_the_notes_of_a_melody_at_their_times(
    engine: Engine, options: StreamOptions, rate_hz: int
) -> None:
    audio = pcm(rate_hz)
    raw = to_bytes(play(MELODY, 1.5, rate_hz), audio)
    got = found(listen(engine, raw, audio, options)[0])
    assert [pitch for pitch, _, _ in got] == [pitch for pitch, _, _ in sorted(MELODY)]
    for (_, onset, offset), (_, onset_s, offset_s) in zip(got, sorted(MELODY), strict=True):
        assert onset == pytest.approx(onset_s, abs=2.5 * FRAME_S)
        assert offset == pytest.approx(offset_s, abs=2.5 * FRAME_S)


@settings(max_examples=40)
@given(data=st.data())
def test_events_depend_on_the_audio_alone(listening_engine: Engine, data: st.DataObject) -> None:
    options = data.draw(st.sampled_from(OPTIONS))
    audio = pcm(
        data.draw(st.sampled_from([8_000, FAKE_RATE_HZ, 44_100, 48_000])),
        data.draw(st.sampled_from(list(Encoding))),
        data.draw(st.sampled_from([1, 2])),
    )
    seed, duration_s = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.floats(0, 1.2))
    samples = performance(audio.sample_rate_hz, seed, duration_s)
    raw = to_bytes(samples, audio)
    sizes = data.draw(st.lists(st.integers(1, 40_000), min_size=1, max_size=5))
    if data.draw(st.booleans()):
        sizes = [max(size, len(raw) // 50 + 1) for size in sizes]
    elif len(raw) > 60 * min(sizes):
        sizes = [*sizes, len(raw) // 20 + 1]
    whole, _ = listen(listening_engine, raw, audio, options)
    assert listen(listening_engine, raw, audio, options, sizes)[0] == whole
    assert listen(listening_engine, raw, audio, options, sizes, Priority.FILE)[0] == whole


@settings(max_examples=12)
@given(data=st.data())
def test_no_event_depends_on_audio_after_its_decision(
    listening_engine: Engine, data: st.DataObject
) -> None:
    """Notes, their ends, names and corrections and the pedal, by the samples that each needed."""
    rate_hz = data.draw(st.sampled_from([FAKE_RATE_HZ, 44_100, 48_000]))
    options = data.draw(st.sampled_from(OPTIONS))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    samples = play(MELODY, 1.5, rate_hz, level=float(rng.uniform(0.1, 0.2)))
    samples += 0.01 * rng.standard_normal(len(samples)).astype(np.float32)
    whole = reported(listening_engine, samples, rate_hz, options)
    assert whole
    _, needed = whole[data.draw(st.integers(0, len(whole) - 1))]
    other = 0.2 * rng.standard_normal(len(samples)).astype(np.float32)
    other[:needed] = samples[:needed]
    known = [one for one in whole if one[1] <= needed]
    assert reported(listening_engine, other, rate_hz, options)[: len(known)] == known


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [0, 129, 20_001])
def test_every_frame_comes_once_and_means_the_same_samples(
    engine: Engine, options: StreamOptions, count: int
) -> None:
    samples = play([(69, 0.2, 9.0)], count / FAKE_RATE_HZ, FAKE_RATE_HZ)
    frames = -(-count // HOP)
    audio = pcm(FAKE_RATE_HZ)
    _, got = listen(engine, to_bytes(samples, audio), audio, options)
    assert got.shape == (3, frames, PITCHES)
    # The fake hears a frame by the samples about it: so does this loop, straight from the audio.
    padded = np.concatenate([np.zeros(WINDOW), samples, np.zeros(WINDOW)]).astype(np.float32)
    fake = FakeTranscriber()
    for frame in range(0, frames, 7):
        at = WINDOW + HOP * frame
        stream = fake.open_stream()
        window = torch.from_numpy(padded[at - HOP : at - HOP + WINDOW].copy())
        amplitude = stream.advance(window, 0)[0]
        expected = (amplitude * 5).clamp(0, 1).numpy()
        np.testing.assert_allclose(got[0, frame, list(FAKE_PITCHES)], expected, atol=1e-5)


@pytest.mark.parametrize(("options", "rate_hz"), list(zip(OPTIONS, RATES_HZ, strict=True)))
async def test_events_come_within_the_stated_delay(options: StreamOptions, rate_hz: int) -> None:
    fake = FakeTranscriber()
    audio, chunk_s = pcm(rate_hz), 0.02
    raw = to_bytes(play(MELODY, 2.0, rate_hz), audio)
    step = int(chunk_s * rate_hz) * audio.frame_bytes
    worst_ms = {"note_on": 0.0, "note_off": 0.0}
    with Engine(fake) as engine:
        session = TranscriptionSession(engine, audio, options)
        for start in range(0, len(raw), step):
            sent_s = (start + step) / audio.frame_bytes / rate_hz
            for event in await session.push(raw[start : start + step]):
                worst_ms[event.kind] = max(worst_ms[event.kind], 1000 * (sent_s - event.time_s))
            assert session.behind_ms == 0
        session.abort()
    delay = session.delay
    assert 0 < worst_ms["note_on"] <= delay.note_on_ms + 1000 * chunk_s
    assert 0 < worst_ms["note_off"] <= delay.note_off_ms + 1000 * chunk_s
    assert delay.note_on_ms <= delay.note_off_ms


async def test_a_cancelled_push_leaves_a_session_that_can_only_be_ended(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play([(69, 0.1, 9.0)], 3.0, 44_100), audio)
    session = TranscriptionSession(engine, audio, StreamOptions())
    events = await session.push(raw[: len(raw) // 3])
    task = asyncio.create_task(session.push(raw[len(raw) // 3 :]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(SessionStateError, match="is failed"):
        await session.push(b"")
    events += session.abort()
    assert session.abort() == []
    with pytest.raises(SessionStateError, match="was aborted"):
        await session.finish()
    assert len(found(events)) == 1
