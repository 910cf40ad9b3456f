"""Tests of the resume of interrupted streams, which must change no event."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HEADS, FilterbankConfig
from service.engine.local import LocalEngine
from service.notes.events import Event, PedalEvent, PedalPress
from service.protocol.checkpoint import Checkpoint
from service.protocol.options import Mode, StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.service.streams import audio_format, compute_pending, open_stream, random_performance

OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=50, block_frames=3),
    StreamOptions(lookahead_ms=372, block_frames=32),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=50, block_frames=1),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200, block_frames=3),
]
RATES_HZ = [8_000, FAKE_RATE_HZ, 12_345, 44_100, 48_000]


@pytest.fixture(scope="module")
def engines() -> Iterator[list[LocalEngine]]:
    """Yield two engines whose streams also estimate the tuning."""
    with (
        LocalEngine(FakeTranscriber(HEADS, FilterbankConfig())) as first,
        LocalEngine(FakeTranscriber(HEADS, FilterbankConfig())) as second,
    ):
        yield [first, second]


def run_stream(
    engine: LocalEngine,
    samples: NDArray[np.float32],
    rate_hz: int,
    options: StreamOptions,
    checkpoint: Checkpoint | None = None,
    cut_at: int | None = None,
) -> tuple[list[Event], Checkpoint]:
    """Stream ``samples``, [n] or [n, 2], from the checkpoint to the end, or up to the sample
    ``cut_at``. Return the events and the checkpoint from which another stream can resume."""
    audio = audio_format(rate_hz, channels=samples.ndim)
    stream = open_stream(engine, audio, options, checkpoint=checkpoint)
    features = engine.open_stream()
    start = checkpoint.from_sample if checkpoint else 0
    events = []
    chunk = rate_hz // 7
    end = cut_at or len(samples)
    for first in range(start, end, chunk):
        stream.feed(samples[first : min(first + chunk, end)].tobytes())
        events += compute_pending(engine, stream, features)
    last_checkpoint = Checkpoint.model_validate_json(stream.checkpoint.model_dump_json())
    if cut_at is None:
        stream.end()
        events += compute_pending(engine, stream, features) + stream.finish()
    return events, last_checkpoint


@settings(max_examples=6)
@given(data=st.data())
def test_interrupted_performance_has_the_events_of_one_session(
    engines: list[LocalEngine], data: st.DataObject
) -> None:
    rate_hz = data.draw(st.sampled_from(RATES_HZ))
    options = data.draw(st.sampled_from(OPTIONS))
    samples = random_performance(rate_hz, data.draw(st.integers(0, 2**32 - 1)))
    expected, _ = run_stream(engines[0], samples, rate_hz, options)
    cuts = data.draw(st.lists(st.integers(1, len(samples) - 1), min_size=1, max_size=3))
    events: list[Event] = []
    checkpoint = None
    for turn, cut in enumerate([*sorted(cuts), None]):
        if checkpoint is not None and cut is not None and cut <= checkpoint.from_sample:
            continue
        engine = engines[turn % 2]
        new, checkpoint = run_stream(engine, samples, rate_hz, options, checkpoint, cut)
        events += new
    assert events == expected


@pytest.mark.parametrize("right", [-1.0, 0.0])
def test_resume_preserves_the_downmix(engines: list[LocalEngine], right: float) -> None:
    mono = random_performance(44_100, 5)
    stereo = np.stack([mono, mono], axis=1)
    stereo[: len(mono) // 2, 1] *= right  # inverted or silent
    expected, _ = run_stream(engines[0], stereo, 44_100, StreamOptions())
    for cut in range(10_000, len(mono), 60_000):
        before, checkpoint = run_stream(engines[0], stereo, 44_100, StreamOptions(), None, cut)
        after, _ = run_stream(engines[1], stereo, 44_100, StreamOptions(), checkpoint)
        assert before + after == expected


@pytest.mark.parametrize(("rate_hz", "options"), list(zip(RATES_HZ, OPTIONS, strict=False)))
def test_replay_needs_at_most_the_guaranteed_audio(
    engines: list[LocalEngine], rate_hz: int, options: StreamOptions
) -> None:
    samples = random_performance(rate_hz, 3)
    stream = open_stream(engines[0], audio_format(rate_hz), options)
    features = engines[0].open_stream()
    for start in range(0, len(samples), rate_hz // 20):
        end = min(start + rate_hz // 20, len(samples))
        stream.feed_samples(samples[start:end])
        compute_pending(engines[0], stream, features)
        buffered_ms = 1000 * (end - stream.checkpoint.from_sample) / rate_hz
        assert buffered_ms <= stream.replay_ms + 51
    assert stream.checkpoint.from_sample > 0
    assert stream.replay_ms < 5_000


def test_resumed_stream_repeats_only_known_fields(engines: list[LocalEngine]) -> None:
    """Until it has new frames, a stream repeats the checkpoint, but not what may be large."""
    sent = {**Checkpoint.start("ab").model_dump(), "curves": {0: {"frame": 2, "timbre": 5}}}
    checkpoint = Checkpoint.model_validate({**sent, "known_events": 3, "breath": 7})
    stream = open_stream(engines[0], audio_format(8_000), checkpoint=checkpoint)
    repeated = stream.checkpoint.model_dump()
    assert repeated == {**sent, "curves": {0: {"frame": 2, "cents": 0.0}}}


def test_sounding_notes_of_a_checkpoint_are_note_ons() -> None:
    note = {"note_id": 0, "pitch": 69, "velocity": 80, "confidence": 0.9, "frame": 3, "time_s": 0.0}
    counts = {"session_id": "a", "from_sample": 0, "frames": 4, "notes": 1}
    sent = Checkpoint.model_validate({**counts, "sounding": [{**note, "kind": "note_off"}]})
    assert [sounding.kind for sounding in sent.sounding] == ["note_on"]


def test_pedal_held_during_an_interruption_is_written(engines: list[LocalEngine]) -> None:
    audio = audio_format(FAKE_RATE_HZ)
    first = open_stream(engines[0], audio, OPTIONS[0])
    features = engines[0].open_stream()
    first.feed(np.zeros(4 * FAKE_RATE_HZ, np.float32).tobytes())
    compute_pending(engines[0], first, features)
    checkpoint = first.checkpoint.model_copy(update={"pedal": True})
    resumed_s = checkpoint.frames * first.frame_s
    assert resumed_s > 1
    for released_s in (resumed_s - 0.1, resumed_s + 1):
        stream = open_stream(engines[0], audio, OPTIONS[0], checkpoint=checkpoint)
        stream.collector.add([PedalEvent(False, 10, released_s)])
        press = PedalPress(resumed_s, max(resumed_s, released_s))
        assert stream.collector.pedal == [press]
