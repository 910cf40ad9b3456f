"""Tests of the transcription of recordings."""

import io
import tracemalloc
from collections.abc import Iterable
from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HEADS, HOP
from service.engine.local import LocalEngine
from service.notes.events import NoteEvent
from service.notes.note_collector import midi_file
from service.protocol.options import FILE_OPTIONS, Mix, Mode, StreamOptions
from service.stream.recording import RecordingStep, TranscriptionResult, transcribe_recording
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.apps import sound_file
from tests.service.streams import MELODY, audio_format, to_bytes, transcribe_stream

RATE_HZ = 44_100


def wav(samples: NDArray[np.float32], subtype: str = "FLOAT") -> io.BytesIO:
    return io.BytesIO(sound_file(samples, "WAV", subtype, RATE_HZ))


def collect(
    file: io.BytesIO, engine: LocalEngine, options: StreamOptions = FILE_OPTIONS
) -> tuple[list[RecordingStep], TranscriptionResult]:
    steps = list(transcribe_recording(file, engine, options))
    assert steps[-1].result is not None
    return steps, steps[-1].result


def note_events(steps: Iterable[RecordingStep]) -> list[NoteEvent]:
    return [event for step in steps for event in step.events if isinstance(event, NoteEvent)]


@pytest.mark.parametrize("options", [FILE_OPTIONS, *(StreamOptions(mode=mode) for mode in Mode)])
def test_file_and_live_stream_return_the_same_events(
    engine: LocalEngine, options: StreamOptions
) -> None:
    samples, audio = play(MELODY, 2.0, RATE_HZ), audio_format(RATE_HZ)
    steps, _ = collect(wav(samples), engine, options)
    events = note_events(steps)
    assert len(events) == 2 * len(MELODY)
    assert events == transcribe_stream(engine, to_bytes(samples, audio), audio, options, [3_001])[0]


def test_progress_is_followed_by_the_result(engine: LocalEngine) -> None:
    steps, result = collect(wav(play(MELODY, 150.0, RATE_HZ)), engine)
    progress = [step.progress for step in steps if step.progress is not None]
    fractions = [item.fraction or 0.0 for item in progress]
    assert len(fractions) >= 3
    assert fractions == sorted(fractions)
    assert fractions == pytest.approx([min(1.0, item.time_s / 150.0) for item in progress])
    assert result.totals.audio_s == 150.0
    assert result.totals.frames == -(-150 * FAKE_RATE_HZ // HOP)
    assert len(result.notes) == result.totals.notes == len(MELODY)
    assert result.midi() == midi_file(result.notes)


def test_settled_instruments_are_reported_and_the_result_has_the_mix() -> None:
    """The fourth note is as loud as a viola, and the right channel is inverted."""
    levels = [0.17, 0.17, 0.17, 0.14, 0.17, 0.17, 0.17, 0.17, 0.17, 0.17, 0.17]
    notes = [[(69 + 12 * (n % 2), 0.3 * n + 0.1, 0.3 * n + 0.3)] for n in range(len(levels))]
    left = np.sum([play(n, 4.0, RATE_HZ, x) for n, x in zip(notes, levels, strict=True)], axis=0)
    with LocalEngine(FakeTranscriber(HEADS), workers=1) as engine:
        steps, result = collect(wav(np.column_stack([left, -left]), "PCM_16"), engine)
    events = note_events(steps)
    assert [event.kind for event in events[:22]] == ["note_on", "note_off"] * len(levels)
    assert {event.kind for event in events[22:]} == {"note_update"}
    latest = {event.note_id: event.instrument for event in events}
    assert [*latest.values()] == ["violin"] * len(levels)
    assert {event.instrument for event in events[:22]} == {"violin", "viola"}
    assert [note.instrument for note in result.notes] == ["violin"] * len(levels)
    assert result.totals.mix is Mix.LEFT


def test_notes_are_returned_before_the_file_is_read_completely() -> None:
    file = wav(play(MELODY, 120.0, RATE_HZ))
    with LocalEngine(FakeTranscriber(), workers=1) as engine:
        with closing(transcribe_recording(file, engine)) as steps:
            assert any(step.events for step in steps)
            assert file.tell() < len(file.getbuffer()) / 2
    assert not file.closed


def test_memory_does_not_grow_with_the_duration(engine: LocalEngine) -> None:
    def peak_bytes(seconds: float) -> int:
        file = wav(play(MELODY, seconds, RATE_HZ), "PCM_16")
        tracemalloc.start()
        try:
            collect(file, engine)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(5.0)  # allocate caches
    # 90 s of samples are 15.9 MB. A few segments, 4 MB, are in flight at any time.
    assert peak_bytes(135.0) < peak_bytes(45.0) + 8_000_000
