"""Tests of streams from audio to events."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HEADS, HOP, PITCHES, WINDOW
from service.engine.local import LocalEngine
from service.notes.events import Event
from service.protocol.options import Encoding, StreamOptions
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.streams import (
    FRAME_S,
    MELODY,
    OPTIONS,
    audio_format,
    compute_pending,
    open_stream,
    paired_notes,
    random_performance,
    to_bytes,
    transcribe_stream,
)

NARROW = [options for options in OPTIONS if options.frames_per_window <= 4]
RATES_HZ = [8_000, FAKE_RATE_HZ, 12_345, 16_000, 44_100, 48_000, 96_000, 192_000]


@pytest.fixture(scope="module")
def full_engine() -> Iterator[LocalEngine]:
    """Yield an engine whose model also predicts instruments and the pedal."""
    with LocalEngine(FakeTranscriber(HEADS)) as engine:
        yield engine


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rate_hz", [8_000, 96_000])
def test_notes_of_a_melody_have_their_times(
    engine: LocalEngine, options: StreamOptions, rate_hz: int
) -> None:
    audio = audio_format(rate_hz)
    raw = to_bytes(play(MELODY, 1.5, rate_hz), audio)
    notes = paired_notes(transcribe_stream(engine, raw, audio, options)[0])
    for (pitch, *times_s), expected in zip(notes, sorted(MELODY), strict=True):
        assert pitch == expected[0]
        assert times_s == pytest.approx(expected[1:], abs=2.5 * FRAME_S)


@settings(max_examples=12)
@given(data=st.data())
def test_chunks_and_batches_change_no_event(full_engine: LocalEngine, data: st.DataObject) -> None:
    options = data.draw(st.sampled_from(OPTIONS))
    audio = audio_format(
        data.draw(st.sampled_from([8_000, FAKE_RATE_HZ, 44_100, 48_000])),
        data.draw(st.sampled_from(list(Encoding))),
        data.draw(st.sampled_from([1, 2])),
    )
    seed, duration_s = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.floats(0, 1.2))
    samples = random_performance(audio.sample_rate_hz, seed, duration_s)
    raw = to_bytes(samples, audio)
    sizes = data.draw(st.lists(st.integers(1, 40_000), min_size=1, max_size=5))
    if data.draw(st.booleans()):
        sizes = [max(size, len(raw) // 50 + 1) for size in sizes]
    elif len(raw) > 60 * min(sizes):
        sizes = [*sizes, len(raw) // 20 + 1]
    expected, _ = transcribe_stream(full_engine, raw, audio, options)
    assert transcribe_stream(full_engine, raw, audio, options, sizes)[0] == expected
    assert transcribe_stream(full_engine, raw, audio, options, sizes, 1)[0] == expected


@settings(max_examples=12)
@given(options=st.sampled_from(NARROW), turns=st.lists(st.booleans(), min_size=1, max_size=5))
def test_wide_windows_give_the_same_frames(
    full_engine: LocalEngine, options: StreamOptions, turns: list[bool]
) -> None:
    """The fake model predicts a frame equally from every window that contains it."""
    samples = random_performance(FAKE_RATE_HZ, 3, 1.0)
    audio = audio_format(FAKE_RATE_HZ)
    raw = to_bytes(samples, audio)
    expected, expected_frames = transcribe_stream(full_engine, raw, audio, options)
    blocks: list[NDArray[np.float32]] = []
    stream = open_stream(full_engine, audio, options, lambda _, block: blocks.append(block.copy()))
    assume(stream.wide_positions.start > 0)  # the fake model detects no onset at position 0
    features = full_engine.open_stream()
    stream.feed(raw)
    stream.end()
    events: list[Event] = []
    turn = widened = 0
    while stream.pending_windows:
        wide = stream.can_widen and turns[turn % len(turns)]
        due = stream.next_windows(1, wide=wide)
        assert due is not None
        events += stream.process_predictions(full_engine.compute(features, due))
        turn, widened = turn + 1, widened + wide
    events += stream.finish()
    assert bool(widened) == any(turns)
    np.testing.assert_allclose(np.concatenate(blocks, axis=1), expected_frames, atol=1e-5)
    assert events == expected


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [0, 129, 20_001])
def test_each_frame_is_computed_once_from_its_samples(
    engine: LocalEngine, options: StreamOptions, count: int
) -> None:
    samples = play([(69, 0.2, 9.0)], count / FAKE_RATE_HZ, FAKE_RATE_HZ)
    frames = -(-count // HOP)
    audio = audio_format(FAKE_RATE_HZ)
    _, outputs = transcribe_stream(engine, to_bytes(samples, audio), audio, options)
    assert outputs.shape == (3, frames, PITCHES)
    # The fake model computes a frame from the samples around it. This loop does the same directly.
    padded = np.concatenate([np.zeros(WINDOW), samples, np.zeros(WINDOW)]).astype(np.float32)
    fake = FakeTranscriber()
    for frame in range(0, frames, 7):
        start = WINDOW + HOP * (frame - 1)
        window = torch.from_numpy(padded[start : start + WINDOW].copy())
        amplitude = fake.open_stream().advance(window, 0)[0]
        expected = (amplitude * 5).clamp(0, 1).numpy()
        np.testing.assert_allclose(outputs[0, frame, list(FAKE_PITCHES)], expected, atol=1e-5)


@pytest.mark.parametrize(("options", "rate_hz"), list(zip(OPTIONS, RATES_HZ, strict=True)))
def test_events_are_sent_within_the_guaranteed_delay(options: StreamOptions, rate_hz: int) -> None:
    audio, chunk_s = audio_format(rate_hz), 0.02
    raw = to_bytes(play(MELODY, 2.0, rate_hz), audio)
    step = int(chunk_s * rate_hz) * audio.pcm_frame_bytes
    max_ms = {"note_on": 0.0, "note_off": 0.0}
    with LocalEngine(FakeTranscriber()) as engine:
        stream = open_stream(engine, audio, options)
        features = engine.open_stream()
        for start in range(0, len(raw), step):
            sent_s = (start + step) / audio.pcm_frame_bytes / rate_hz
            stream.feed(raw[start : start + step])
            for event in compute_pending(engine, stream, features):
                max_ms[event.kind] = max(max_ms[event.kind], 1000 * (sent_s - event.time_s))
            assert stream.behind_ms == 0
    delay = stream.delay
    assert 0 < max_ms["note_on"] <= delay.note_on_ms + 1000 * chunk_s
    assert 0 < max_ms["note_off"] <= delay.note_off_ms + 1000 * chunk_s
    assert delay.note_on_ms <= delay.note_off_ms


def test_invalid_audio_ends_a_stream_after_earlier_events(engine: LocalEngine) -> None:
    audio = audio_format()
    good = play([(69, 0.1, 9.0)], 1.0, 44_100)
    raw = to_bytes(np.append(good, [np.nan, 0.5]).astype(np.float32), audio)
    stream = open_stream(engine, audio)
    features = engine.open_stream()
    stream.feed(raw)
    events = compute_pending(engine, stream, features)
    assert stream.error is not None
    assert "44100 is nan" in str(stream.error)
    stream.feed(raw)  # ignored
    stream.end()
    events += compute_pending(engine, stream, features) + stream.finish()
    assert paired_notes(events) == paired_notes(
        transcribe_stream(engine, to_bytes(good, audio), audio)[0]
    )
    totals = stream.totals
    assert (totals.received_samples, totals.dropped_samples) == (44_100, 2)
    assert stream.close() == []
