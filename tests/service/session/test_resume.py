"""A performance that is cut anywhere and resumed gives the events of one that was not."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HEADS
from service.engine.engine import Engine
from service.notes.events import Event
from service.notes.resume import ResumePoint
from service.protocol.options import AudioFormat, Encoding, Mode, StreamOptions
from service.session.session import TranscriptionSession
from service.session.wire import checkpoint_of, resume_point
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.service.sessions import pcm, performance

OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=50, block_frames=3),
    StreamOptions(lookahead_ms=372, block_frames=32),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=50, block_frames=1),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200, block_frames=3),
]
RATES_HZ = [8_000, FAKE_RATE_HZ, 12_345, 44_100, 48_000]


@pytest.fixture(scope="module")
def engines() -> Iterator[list[Engine]]:
    with Engine(FakeTranscriber(HEADS)) as one, Engine(FakeTranscriber(HEADS)) as other:
        yield [one, other]


def run(
    engine: Engine,
    samples: NDArray[np.float32],
    rate_hz: int,
    options: StreamOptions,
    point: ResumePoint | None = None,
    cut_at: int | None = None,
) -> tuple[list[Event], ResumePoint]:
    """The events of a session that hears ``samples`` from the point on, to the end or up to a
    sample where its connection breaks; and the point where the next one may go on."""

    async def transcribe() -> tuple[list[Event], ResumePoint]:
        session = TranscriptionSession(engine, pcm(rate_hz), options, resume=point)
        start = point.from_sample if point else 0
        events = []
        chunk = rate_hz // 7
        for begin in range(start, cut_at or len(samples), chunk):
            end = min(begin + chunk, cut_at or len(samples))
            events += await session.push_samples(samples[begin:end])
        reached = session.point
        if cut_at is None:
            events += await session.finish()
        else:
            session.abort()  # these ends are never heard of
        return events, reached

    return asyncio.run(transcribe())


@settings(max_examples=8)
@given(data=st.data())
def test_cut_anywhere_the_union_of_the_events_is_that_of_one_session(
    engines: list[Engine], data: st.DataObject
) -> None:
    rate_hz = data.draw(st.sampled_from(RATES_HZ))
    options = data.draw(st.sampled_from(OPTIONS))
    samples = performance(rate_hz, data.draw(st.integers(0, 2**32 - 1)))
    whole, _ = run(engines[0], samples, rate_hz, options)
    cuts = data.draw(st.lists(st.integers(1, len(samples) - 1), min_size=1, max_size=3))
    events: list[Event] = []
    point = None
    for turn, cut in enumerate([*sorted(cuts), None]):
        if point is not None and cut is not None and cut <= point.from_sample:
            continue
        got, point = run(engines[turn % 2], samples, rate_hz, options, point, cut)
        events += got
    assert events == whole


@pytest.mark.parametrize("right", [-1.0, 0.0, 1.0])
async def test_a_resumed_stream_mixes_its_channels_as_before(
    engines: list[Engine], right: float
) -> None:
    """Reversed or dead for the first half, then both alike."""
    mono = performance(44_100, 5)
    values = np.stack([mono, mono], axis=1)
    values[: len(mono) // 2, 1] *= right
    audio = AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=44_100, channels=2)
    whole = TranscriptionSession(engines[0], audio, StreamOptions())
    events = await whole.push(values.tobytes()) + await whole.finish()
    for cut in range(10_000, len(mono), 60_000):
        first = TranscriptionSession(engines[0], audio, StreamOptions())
        heard = []
        for part in np.array_split(values[:cut], 1 + cut // 3_000):
            heard += await first.push(part.tobytes())
        point = resume_point(checkpoint_of("a", first.point))
        first.abort()
        second = TranscriptionSession(engines[1], audio, StreamOptions(), resume=point)
        heard += await second.push(values[point.from_sample :].tobytes())
        assert heard + await second.finish() == events


@pytest.mark.parametrize(("rate_hz", "options"), list(zip(RATES_HZ, OPTIONS, strict=False)))
async def test_no_more_audio_must_be_kept_than_stated(
    engines: list[Engine], rate_hz: int, options: StreamOptions
) -> None:
    samples = performance(rate_hz, 3)
    session = TranscriptionSession(engines[0], pcm(rate_hz), options)
    for begin in range(0, len(samples), rate_hz // 20):
        end = min(begin + rate_hz // 20, len(samples))
        await session.push_samples(samples[begin:end])
        kept_ms = 1000 * (end - session.point.from_sample) / rate_hz
        assert kept_ms <= session.replay_ms + 51
    session.abort()
    assert session.point.from_sample > 0
    assert session.replay_ms < 5_000
