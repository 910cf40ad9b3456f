"""A performance that is cut anywhere and resumed gives the events of one that was not."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HEADS, FilterbankConfig
from service.engine.local import LocalEngine
from service.notes.events import Event
from service.notes.resume import ResumePoint
from service.protocol.client_messages import Checkpoint
from service.protocol.options import AudioFormat, Encoding, Mode, StreamOptions
from service.stream.resume import checkpoint_of, resume_point
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.service.streams import (
    audio_format,
    compute_pending,
    open_stream,
    random_performance,
    transcribe_stream,
)

OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=50, block_frames=3),
    StreamOptions(lookahead_ms=372, block_frames=32),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=50, block_frames=1),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200, block_frames=3),
]
RATES_HZ = [8_000, FAKE_RATE_HZ, 12_345, 44_100, 48_000]


@pytest.fixture(scope="module")
def computers() -> Iterator[list[LocalEngine]]:
    heads = FakeTranscriber(HEADS), FakeTranscriber(HEADS)
    with LocalEngine(heads[0]) as one, LocalEngine(heads[1]) as other:
        yield [one, other]


@pytest.fixture(scope="module")
def tuned() -> Iterator[LocalEngine]:
    """Its streams follow the tuning."""
    with LocalEngine(FakeTranscriber(HEADS, FilterbankConfig())) as engine:
        yield engine


def run(
    engine: LocalEngine,
    samples: NDArray[np.float32],
    rate_hz: int,
    options: StreamOptions,
    point: ResumePoint | None = None,
    cut_at: int | None = None,
) -> tuple[list[Event], ResumePoint]:
    """Stream ``samples`` from the point to the end, or until the connection breaks at a sample.
    Return the events and the point from which another stream can resume."""
    stream = open_stream(engine, audio_format(rate_hz), options, resume=point)
    features = engine.open_stream(stream.positions)
    start = point.from_sample if point else 0
    events = []
    chunk = rate_hz // 7
    for begin in range(start, cut_at or len(samples), chunk):
        stream.feed_samples(samples[begin : min(begin + chunk, cut_at or len(samples))])
        events += compute_pending(engine, stream, features)
    reached = stream.point
    if cut_at is None:
        stream.end()
        events += compute_pending(engine, stream, features) + stream.finish()
    return events, reached


@settings(max_examples=6)
@given(data=st.data())
def test_cut_anywhere_the_union_of_the_events_is_that_of_one_session(
    computers: list[LocalEngine], data: st.DataObject
) -> None:
    rate_hz = data.draw(st.sampled_from(RATES_HZ))
    options = data.draw(st.sampled_from(OPTIONS))
    samples = random_performance(rate_hz, data.draw(st.integers(0, 2**32 - 1)))
    whole, _ = run(computers[0], samples, rate_hz, options)
    cuts = data.draw(st.lists(st.integers(1, len(samples) - 1), min_size=1, max_size=3))
    events: list[Event] = []
    point = None
    for turn, cut in enumerate([*sorted(cuts), None]):
        if point is not None and cut is not None and cut <= point.from_sample:
            continue
        got, point = run(computers[turn % 2], samples, rate_hz, options, point, cut)
        events += got
    assert events == whole


@pytest.mark.parametrize("options", OPTIONS[::2])
def test_a_stream_whose_tuning_is_followed_can_be_cut_anywhere(
    tuned: LocalEngine, options: StreamOptions
) -> None:
    samples = random_performance(FAKE_RATE_HZ, 5)
    whole, _ = run(tuned, samples, FAKE_RATE_HZ, options)
    for cut in range(2 * FAKE_RATE_HZ, len(samples), 9_001):
        before, point = run(tuned, samples, FAKE_RATE_HZ, options, None, cut)
        after, _ = run(tuned, samples, FAKE_RATE_HZ, options, point)
        assert before + after == whole


@pytest.mark.parametrize("right", [-1.0, 0.0, 1.0])
def test_a_resumed_stream_mixes_its_channels_as_before(
    computers: list[LocalEngine], right: float
) -> None:
    """Reversed or dead for the first half, then both alike."""
    mono = random_performance(44_100, 5)
    values = np.stack([mono, mono], axis=1)
    values[: len(mono) // 2, 1] *= right
    audio = AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=44_100, channels=2)
    events, _ = transcribe_stream(computers[0], values.tobytes(), audio)
    for cut in range(10_000, len(mono), 60_000):
        first = open_stream(computers[0], audio)
        features = computers[0].open_stream(first.positions)
        got = []
        for part in np.array_split(values[:cut], 1 + cut // 3_000):
            first.feed(part.tobytes())
            got += compute_pending(computers[0], first, features)
        point = resume_point(checkpoint_of("a", first.point))
        second = open_stream(computers[1], audio, resume=point)
        features = computers[1].open_stream(second.positions)
        second.feed(values[point.from_sample :].tobytes())
        got += compute_pending(computers[1], second, features)
        second.end()
        assert got + compute_pending(computers[1], second, features) + second.finish() == events


@pytest.mark.parametrize(("rate_hz", "options"), list(zip(RATES_HZ, OPTIONS, strict=False)))
def test_no_more_audio_must_be_kept_than_stated(
    computers: list[LocalEngine], rate_hz: int, options: StreamOptions
) -> None:
    samples = random_performance(rate_hz, 3)
    stream = open_stream(computers[0], audio_format(rate_hz), options)
    features = computers[0].open_stream(stream.positions)
    for begin in range(0, len(samples), rate_hz // 20):
        end = min(begin + rate_hz // 20, len(samples))
        stream.feed_samples(samples[begin:end])
        compute_pending(computers[0], stream, features)
        kept_ms = 1000 * (end - stream.point.from_sample) / rate_hz
        assert kept_ms <= stream.replay_ms + 51
    assert stream.point.from_sample > 0
    assert stream.replay_ms < 5_000


def test_what_sounds_has_begun_whatever_a_client_says() -> None:
    note = {"note_id": 0, "pitch": 69, "velocity": 80, "confidence": 0.9, "frame": 3, "time_s": 0.0}
    counts = {"session_id": "a", "from_sample": 0, "frames": 4, "notes": 1}
    sent = Checkpoint.model_validate({**counts, "sounding": [{**note, "kind": "note_off"}]})
    assert [sounding.kind for sounding in resume_point(sent).sounding] == ["note_on"]
