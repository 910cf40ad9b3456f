"""Sessions: the events depend on the audio alone, and every fault leaves all notes ended."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator

import numpy as np
import pretty_midi
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HOP, PITCHES, WINDOW
from service.engine import Engine, EngineError, Priority
from service.events import NoteEvent
from service.limits import BufferFullError, SessionLimits, TooManyNotesError
from service.options import AudioFormat, Encoding, Mode, StreamOptions
from service.pcm import BadAudioError, OddBytesError
from service.session import TranscriptionSession
from service.session_state import SessionState, SessionStateError
from service.tracker_settings import TrackerSettings
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, FakeTranscriber, play

FRAME_S = HOP / FAKE_RATE_HZ
OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=50, block_frames=1),
    StreamOptions(lookahead_ms=200, block_frames=16),
    StreamOptions(lookahead_ms=372, block_frames=32),
    StreamOptions(mode=Mode.CENTRE),
]
MELODY = [(69, 0.1, 0.4), (81, 0.25, 0.6), (69, 0.5, 0.8), (93, 0.9, 1.2), (57, 0.9, 1.2)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(FakeTranscriber()) as engine:
        yield engine


def pcm(
    rate_hz: int = 44_100, encoding: Encoding = Encoding.PCM_F32LE, channels: int = 1
) -> AudioFormat:
    return AudioFormat(encoding=encoding, sample_rate_hz=rate_hz, channels=channels)


def to_bytes(samples: NDArray[np.float32], audio: AudioFormat) -> bytes:
    wide = np.repeat(samples[:, None], audio.channels, axis=1)
    if audio.encoding is Encoding.PCM_S16LE:
        return (wide * 32_767).astype("<i2").tobytes()
    return wide.astype("<f4").tobytes()


def transcribe(
    engine: Engine,
    data: bytes,
    audio: AudioFormat,
    options: StreamOptions | None = None,
    sizes: list[int] | None = None,
    priority: Priority = Priority.LIVE,
) -> list[NoteEvent]:
    """The events of a session that is given ``data`` in pieces of ``sizes``, taken in turn."""

    async def run() -> list[NoteEvent]:
        session = TranscriptionSession(engine, audio, options or StreamOptions(), priority=priority)
        events, start, turn = [], 0, 0
        while start < len(data):
            size = sizes[turn % len(sizes)] if sizes else len(data)
            events += await session.push(data[start : start + size])
            start, turn = start + size, turn + 1
        return events + await session.finish()

    return asyncio.run(run())


def found(events: list[NoteEvent]) -> list[tuple[int, float, float]]:
    """(pitch, onset_s, offset_s) by onset."""
    ons = {e.note_id: e for e in events if e.kind == "note_on"}
    offs = {e.note_id: e for e in events if e.kind == "note_off"}
    assert ons.keys() == offs.keys()
    assert len(events) == 2 * len(ons)
    return sorted((ons[i].pitch, ons[i].time_s, offs[i].time_s) for i in ons)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rate_hz", [8_000, FAKE_RATE_HZ, 44_100, 96_000])
def test_the_notes_of_a_melody_at_their_times(
    engine: Engine, options: StreamOptions, rate_hz: int
) -> None:
    audio = pcm(rate_hz)
    events = transcribe(engine, to_bytes(play(MELODY, 1.5, rate_hz), audio), audio, options)
    got = found(events)
    assert [pitch for pitch, _, _ in got] == [pitch for pitch, _, _ in sorted(MELODY)]
    for (_, onset, offset), (_, onset_s, offset_s) in zip(got, sorted(MELODY), strict=True):
        assert onset == pytest.approx(onset_s, abs=2.5 * FRAME_S)
        assert offset == pytest.approx(offset_s, abs=2.5 * FRAME_S)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_events_depend_on_the_audio_alone(engine: Engine, data: st.DataObject) -> None:
    options = data.draw(st.sampled_from(OPTIONS))
    audio = pcm(
        data.draw(st.sampled_from([8_000, FAKE_RATE_HZ, 44_100, 48_000])),
        data.draw(st.sampled_from(list(Encoding))),
        data.draw(st.sampled_from([1, 2])),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    duration_s = data.draw(st.floats(0, 1.2))
    notes = []
    for pitch in FAKE_PITCHES:
        for onset_s in rng.uniform(0, 1.2, rng.integers(0, 4)):
            notes.append((pitch, onset_s, onset_s + rng.uniform(0.02, 0.4)))
    samples = play(notes, duration_s, audio.sample_rate_hz)
    samples += 0.01 * rng.standard_normal(len(samples)).astype(np.float32)
    raw = to_bytes(samples, audio)
    sizes = data.draw(st.lists(st.integers(1, 40_000), min_size=1, max_size=5))
    if data.draw(st.booleans()):
        sizes = [max(size, len(raw) // 50 + 1) for size in sizes]
    elif len(raw) > 60 * min(sizes):
        sizes = [*sizes, len(raw) // 20 + 1]
    whole = transcribe(engine, raw, audio, options)
    assert transcribe(engine, raw, audio, options, sizes) == whole
    assert transcribe(engine, raw, audio, options, sizes, Priority.FILE) == whole


def test_single_bytes_give_the_same_events(engine: Engine) -> None:
    audio = pcm(8_000, Encoding.PCM_S16LE, 2)
    raw = to_bytes(play([(69, 0.05, 0.2)], 0.3, 8_000), audio)
    one_by_one = transcribe(engine, raw, audio, sizes=[1])
    assert one_by_one == transcribe(engine, raw, audio)
    assert len(one_by_one) == 2


@pytest.mark.parametrize("options", OPTIONS)
def test_the_first_and_the_last_moments_are_transcribed(
    engine: Engine, options: StreamOptions
) -> None:
    audio = pcm()
    notes = [(69, 0.0, 0.3), (81, 2.7, 3.0)]
    raw = to_bytes(play(notes, 3.0, 44_100), audio)
    got = found(transcribe(engine, raw, audio, options))
    assert [pitch for pitch, _, _ in got] == [69, 81]
    assert got[0][1] == pytest.approx(0.0, abs=2.5 * FRAME_S)
    assert got[1][1] == pytest.approx(2.7, abs=2.5 * FRAME_S)
    assert got[1][2] == pytest.approx(3.0, abs=2.5 * FRAME_S)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 5_000, WINDOW, 20_001])
def test_every_frame_comes_once_and_means_the_same_samples(
    engine: Engine, options: StreamOptions, count: int
) -> None:
    samples = play([(69, 0.2, 9.0)], count / FAKE_RATE_HZ, FAKE_RATE_HZ)
    audio = pcm(FAKE_RATE_HZ)
    blocks: list[tuple[int, NDArray[np.float32]]] = []

    async def run() -> TranscriptionSession:
        session = TranscriptionSession(
            engine, audio, options, on_frames=lambda first, probs: blocks.append((first, probs))
        )
        await session.push(to_bytes(samples, audio))
        await session.finish()
        return session

    session = asyncio.run(run())
    frames = -(-count // HOP)
    assert session.frames == session.totals.frames == frames
    assert [first for first, _ in blocks] == list(np.cumsum([0, *(b.shape[1] for _, b in blocks)]))[
        : len(blocks)
    ]
    if frames == 0:
        return
    got = np.concatenate([block for _, block in blocks], axis=1)
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


def test_events_come_within_the_stated_delay(engine: Engine) -> None:
    audio = pcm(48_000)
    chunk_s = 0.02
    raw = to_bytes(play(MELODY, 2.0, 48_000), audio)
    step = int(chunk_s * 48_000) * audio.frame_bytes

    async def run(options: StreamOptions) -> None:
        patient = TrackerSettings(release_frames=6)  # ends are known later than beginnings
        session = TranscriptionSession(engine, audio, options, tracker=patient)
        worst_ms = {"note_on": 0.0, "note_off": 0.0}
        for start in range(0, len(raw), step):
            sent_s = (start + step) / audio.frame_bytes / 48_000
            for event in await session.push(raw[start : start + step]):
                worst_ms[event.kind] = max(worst_ms[event.kind], 1000 * (sent_s - event.time_s))
            assert session.behind_ms == 0
        session.abort()
        delay = session.delay
        assert 0 < worst_ms["note_on"] <= delay.note_on_ms + 1000 * chunk_s
        assert 0 < worst_ms["note_off"] <= delay.note_off_ms + 1000 * chunk_s
        assert delay.note_on_ms < delay.note_off_ms

    for options in OPTIONS:
        asyncio.run(run(options))


def test_the_midi_file_holds_the_events(engine: Engine) -> None:
    audio = pcm()

    async def run() -> tuple[list[NoteEvent], bytes]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(to_bytes(play(MELODY, 1.5, 44_100), audio))
        events += await session.finish()
        assert session.totals.notes == len(session.notes) == len(MELODY)
        return events, session.midi()

    events, midi = asyncio.run(run())
    opened = pretty_midi.PrettyMIDI(io.BytesIO(midi)).instruments[0].notes
    in_file = sorted((n.pitch, n.start, n.end) for n in opened)
    for got, expected in zip(in_file, found(events), strict=True):
        assert got == pytest.approx(expected, abs=1e-4)


def test_bad_audio_loses_nothing_before_it(engine: Engine) -> None:
    audio = pcm(FAKE_RATE_HZ)
    samples = play([(69, 0.1, 0.5), (81, 0.6, 2.0)], 2.0, FAKE_RATE_HZ)
    bad_at = FAKE_RATE_HZ  # 1 s
    spoilt = samples.copy()
    spoilt[bad_at] = np.nan

    async def run() -> list[NoteEvent]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        with pytest.raises(BadAudioError, match=f"sample {bad_at} is nan") as caught:
            await session.push(to_bytes(spoilt, audio))
        assert session.state is SessionState.FAILED
        with pytest.raises(SessionStateError, match="the session is failed"):
            await session.push(b"\0" * 4)
        events = caught.value.events + await session.finish()
        totals = session.totals
        assert (totals.received_samples, totals.dropped_samples) == (bad_at, len(samples) - bad_at)
        return events

    assert asyncio.run(run()) == transcribe(engine, to_bytes(samples[:bad_at], audio), audio)


def test_an_incomplete_last_sample_is_told_and_nothing_is_lost(engine: Engine) -> None:
    audio = pcm(FAKE_RATE_HZ)
    raw = to_bytes(play(MELODY, 1.5, FAKE_RATE_HZ), audio)

    async def run() -> list[NoteEvent]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(raw + b"\0\0\0")
        with pytest.raises(OddBytesError, match="3 of the 4 bytes") as caught:
            await session.finish()
        assert session.state is SessionState.FINISHED
        return events + caught.value.events

    assert asyncio.run(run()) == transcribe(engine, raw, audio)


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_a_failing_model_leaves_all_notes_ended(end: str) -> None:
    audio = pcm(FAKE_RATE_HZ)
    raw = to_bytes(play([(69, 0.1, 3.0)], 2.0, FAKE_RATE_HZ), audio)

    async def run() -> list[NoteEvent]:
        fake = FakeTranscriber()
        with Engine(fake) as engine:
            session = TranscriptionSession(engine, audio, StreamOptions())
            events = await session.push(raw[: len(raw) // 2])
            fake.fail_next_batch = True
            with pytest.raises(EngineError, match="failing batch"):
                await session.push(raw[len(raw) // 2 :])
            events += session.abort() if end == "abort" else await session.finish()
            other = TranscriptionSession(engine, audio, StreamOptions())
            assert len(await other.push(raw) + await other.finish()) == 2
            return events

    assert [pitch for pitch, _, _ in found(asyncio.run(run()))] == [69]


def test_abort_ends_open_notes_and_is_idempotent(engine: Engine) -> None:
    audio = pcm()

    async def run() -> None:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(to_bytes(play([(69, 0.1, 9.0)], 1.0, 44_100), audio))
        assert [e.kind for e in events] == ["note_on"]
        (off,) = session.abort()
        assert off.kind == "note_off"
        assert off.time_s > events[0].time_s
        assert session.state is SessionState.ABORTED
        assert session.abort() == []
        assert len(session.notes) == 1
        with pytest.raises(SessionStateError, match="was aborted"):
            await session.finish()
        with pytest.raises(SessionStateError, match="is aborted"):
            await session.push(b"")

    asyncio.run(run())


def test_a_cancelled_push_leaves_a_session_that_can_be_ended(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play([(69, 0.1, 9.0)], 3.0, 44_100), audio)

    async def run() -> list[NoteEvent]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(raw[: len(raw) // 3])
        task = asyncio.create_task(session.push(raw[len(raw) // 3 :]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.state is SessionState.FAILED
        return events + session.abort()

    assert len(found(asyncio.run(run()))) == 1


def test_finishing_twice_gives_nothing_more(engine: Engine) -> None:
    async def run() -> None:
        session = TranscriptionSession(engine, pcm(), StreamOptions())
        assert await session.finish() == []
        assert await session.finish() == []
        assert session.abort() == []
        assert session.state is SessionState.FINISHED

    asyncio.run(run())


def test_concurrent_pushes_are_taken_in_order_and_bounded(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play(MELODY, 1.5, 44_100), audio)
    parts = [raw[i : i + len(raw) // 3] for i in range(0, len(raw), len(raw) // 3)]

    async def run() -> list[NoteEvent]:
        limits = SessionLimits(max_buffered_ms=1_200)
        session = TranscriptionSession(engine, audio, StreamOptions(), limits=limits)
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(session.push(part)) for part in parts[:3]]
            await asyncio.sleep(0)
            with pytest.raises(BufferFullError, match="1000 ms of audio wait"):
                await session.push(parts[0])
            assert session.behind_ms > 500
        return [e for push in pushes for e in push.result()] + await session.finish()

    assert asyncio.run(run()) == transcribe(engine, raw, audio)


def test_too_many_notes_end_the_audio_but_lose_no_event(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play(MELODY, 1.5, 44_100), audio)

    async def run() -> list[NoteEvent]:
        limits = SessionLimits(max_notes=2)
        session = TranscriptionSession(engine, audio, StreamOptions(), limits=limits)
        with pytest.raises(TooManyNotesError, match="more than 2 notes"):
            await session.push(raw)
        return await session.finish()

    assert asyncio.run(run()) == transcribe(engine, raw, audio)


def test_the_card_sets_the_tracker_and_the_caller_overrides_it() -> None:
    fake = FakeTranscriber()
    fake.card = {"tracker": {"min_note_frames": 40}}
    audio = pcm()
    raw = to_bytes(play([(69, 0.1, 0.2)], 1.0, 44_100), audio)

    async def length_s(engine: Engine, tracker: TrackerSettings | None) -> float:
        session = TranscriptionSession(engine, audio, StreamOptions(), tracker=tracker)
        await session.push(raw)
        await session.finish()
        (note,) = session.notes
        return note.offset_s - note.onset_s

    with Engine(fake) as engine:
        assert asyncio.run(length_s(engine, None)) == pytest.approx(40 * FRAME_S, abs=FRAME_S)
        assert asyncio.run(length_s(engine, TrackerSettings())) < 0.2


def test_a_model_with_the_frame_head_alone() -> None:
    audio = pcm()
    with Engine(FakeTranscriber(heads=("frame",))) as engine:
        raw = to_bytes(play(MELODY, 1.5, 44_100), audio)
        got = found(transcribe(engine, raw, audio))
    assert [pitch for pitch, _, _ in got] == [pitch for pitch, _, _ in sorted(MELODY)]
