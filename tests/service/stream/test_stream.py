"""Streams: the events depend on the audio alone, and come within the stated delay."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
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

RATES_HZ = [8_000, FAKE_RATE_HZ, 12_345, 16_000, 44_100, 48_000, 96_000, 192_000]


@pytest.fixture(scope="module")
def listening_computer() -> Iterator[LocalEngine]:
    """With a model that tells instruments and the pedal as well."""
    with LocalEngine(FakeTranscriber(HEADS)) as engine:
        yield engine


def reported(
    engine: LocalEngine, samples: NDArray[np.float32], rate_hz: int, options: StreamOptions
) -> list[tuple[Event, int]]:
    """Each event of a stream with the number of samples that it needed; not those of the end."""
    stream = open_stream(engine, audio_format(rate_hz), options)
    features = engine.open_stream(stream.positions)
    stream.feed_samples(samples)
    out: list[tuple[Event, int]] = []
    while (pending := stream.next_windows(1)) is not None:
        events = stream.process_predictions(engine.compute(features, pending))
        out += [(event, stream.processed_samples) for event in events]
    return out


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rate_hz", [8_000, 96_000])
def test_the_notes_of_a_melody_at_their_times(
    engine: LocalEngine, options: StreamOptions, rate_hz: int
) -> None:
    audio = audio_format(rate_hz)
    raw = to_bytes(play(MELODY, 1.5, rate_hz), audio)
    got = paired_notes(transcribe_stream(engine, raw, audio, options)[0])
    assert [pitch for pitch, _, _ in got] == [pitch for pitch, _, _ in sorted(MELODY)]
    for (_, onset, offset), (_, onset_s, offset_s) in zip(got, sorted(MELODY), strict=True):
        assert onset == pytest.approx(onset_s, abs=2.5 * FRAME_S)
        assert offset == pytest.approx(offset_s, abs=2.5 * FRAME_S)


@settings(max_examples=12)
@given(data=st.data())
def test_events_depend_on_the_audio_alone(
    listening_computer: LocalEngine, data: st.DataObject
) -> None:
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
    whole, _ = transcribe_stream(listening_computer, raw, audio, options)
    assert transcribe_stream(listening_computer, raw, audio, options, sizes)[0] == whole
    assert transcribe_stream(listening_computer, raw, audio, options, sizes, 1)[0] == whole


@settings(max_examples=8)
@given(data=st.data())
def test_no_event_depends_on_audio_after_its_decision(
    listening_computer: LocalEngine, data: st.DataObject
) -> None:
    """Notes, their ends, names and corrections and the pedal, by the samples that each needed."""
    rate_hz = data.draw(st.sampled_from([FAKE_RATE_HZ, 44_100, 48_000]))
    options = data.draw(st.sampled_from(OPTIONS))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    samples = play(MELODY, 1.5, rate_hz, level=float(rng.uniform(0.1, 0.2)))
    samples += 0.01 * rng.standard_normal(len(samples)).astype(np.float32)
    whole = reported(listening_computer, samples, rate_hz, options)
    assert whole
    _, needed = whole[data.draw(st.integers(0, len(whole) - 1))]
    other = 0.2 * rng.standard_normal(len(samples)).astype(np.float32)
    other[:needed] = samples[:needed]
    known = [one for one in whole if one[1] <= needed]
    assert reported(listening_computer, other, rate_hz, options)[: len(known)] == known


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [0, 129, 20_001])
def test_every_frame_comes_once_and_means_the_same_samples(
    engine: LocalEngine, options: StreamOptions, count: int
) -> None:
    samples = play([(69, 0.2, 9.0)], count / FAKE_RATE_HZ, FAKE_RATE_HZ)
    frames = -(-count // HOP)
    audio = audio_format(FAKE_RATE_HZ)
    _, got = transcribe_stream(engine, to_bytes(samples, audio), audio, options)
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
def test_events_come_within_the_stated_delay(options: StreamOptions, rate_hz: int) -> None:
    fake = FakeTranscriber()
    audio, chunk_s = audio_format(rate_hz), 0.02
    raw = to_bytes(play(MELODY, 2.0, rate_hz), audio)
    step = int(chunk_s * rate_hz) * audio.pcm_frame_bytes
    worst_ms = {"note_on": 0.0, "note_off": 0.0}
    with LocalEngine(fake) as engine:
        stream = open_stream(engine, audio, options)
        features = engine.open_stream(stream.positions)
        for start in range(0, len(raw), step):
            sent_s = (start + step) / audio.pcm_frame_bytes / rate_hz
            stream.feed(raw[start : start + step])
            for event in compute_pending(engine, stream, features):
                worst_ms[event.kind] = max(worst_ms[event.kind], 1000 * (sent_s - event.time_s))
            assert stream.behind_ms == 0
    delay = stream.delay
    assert 0 < worst_ms["note_on"] <= delay.note_on_ms + 1000 * chunk_s
    assert 0 < worst_ms["note_off"] <= delay.note_off_ms + 1000 * chunk_s
    assert delay.note_on_ms <= delay.note_off_ms


def test_bad_audio_ends_a_stream_that_keeps_what_came_before(engine: LocalEngine) -> None:
    audio = audio_format()
    good = play([(69, 0.1, 9.0)], 1.0, 44_100)
    raw = to_bytes(np.append(good, [np.nan, 0.5]).astype(np.float32), audio)
    stream = open_stream(engine, audio)
    features = engine.open_stream(stream.positions)
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
