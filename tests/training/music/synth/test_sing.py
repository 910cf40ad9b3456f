"""Tests of singing voices, with a synthetic speaker."""

import json

import numpy as np
import pytest
import pyworld
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st

from model.config import SAMPLE_RATE
from training.music.notes import notes_of
from training.music.synth.sing import (
    CHORD_S,
    SHORTEST_S,
    Habits,
    line,
    random_melody,
    shift_to_range,
    sing,
)
from training.music.synth.voices import RATE, Singer, load_singers

SPEAKER_HZ = 120.0
SYLLABLES = 6
SECONDS = 10.0


def speech() -> np.ndarray:
    """Return SYLLABLES syllables, each a hiss and a vowel of 0.2 s."""
    rng = np.random.default_rng(0)
    time = np.arange(int(0.2 * RATE)) / RATE
    vowel = sum(
        np.sin(2 * np.pi * SPEAKER_HZ * n * time) / (1 + ((SPEAKER_HZ * n - 700) / 300) ** 2)
        for n in range(1, 50)
    )
    vowel = vowel / np.abs(vowel).max() * np.hanning(len(time)) ** 0.3
    hiss = 0.02 * rng.standard_normal(int(0.08 * RATE))
    rest = 1e-4 * rng.standard_normal(int(0.1 * RATE))
    return np.tile(np.concatenate([rest, hiss, vowel]), SYLLABLES)


def habits(rng: np.random.Generator, **settings: float) -> Habits:
    singer_habits = Habits(rng)
    vars(singer_habits).update(settings)
    return singer_habits


@pytest.fixture(scope="module")
def singer(tmp_path_factory: pytest.TempPathFactory) -> Singer:
    root = tmp_path_factory.mktemp("voices")
    soundfile.write(root / "a.wav", 0.5 * speech(), RATE)
    files = [{"file": "a.wav", "speaker": "A", "held_out": True}]
    (root / "speech.json").write_text(json.dumps({"files": files}))
    (singer,) = load_singers(root, root / "cache")
    return singer


def test_syllables_of_a_speaker_are_detected(singer: Singer) -> None:
    assert singer.held_out
    assert len(singer.syllables) == SYLLABLES
    assert singer.pitch == pytest.approx(69 + 12 * np.log2(SPEAKER_HZ / 440), abs=0.2)
    for syllable in singer.syllables:
        assert syllable.begin <= syllable.voiced <= syllable.vowel
        assert syllable.vowel < syllable.release <= syllable.end
        assert 20 < syllable.release - syllable.vowel < 50  # frames of 5 ms


def test_sung_notes_have_the_labelled_pitch_and_onset(singer: Singer) -> None:
    rng = np.random.default_rng(3)
    written = notes_of([0.5, 1.5, 2.0, 3.5], [1.4, 2.0, 3.0, 4.5], [52, 55, 55, 50], 90)
    steady = habits(rng, vibrato=0, detune=0, drift=0, tuning=0, scoop=0, fall=0)
    sung = sing(written, singer, steady, 5.0, 0.0, rng)
    assert sung.notes.pitch.tolist() == written.pitch.tolist()
    assert np.abs(sung.notes.onset - written.onset).max() < 0.01
    assert len(sung.audio) == 5 * SAMPLE_RATE
    resampled = soxr.resample(sung.audio.astype(float), SAMPLE_RATE, RATE)
    hertz, _ = pyworld.harvest(resampled, RATE, 70, 800, 5.0)
    for onset, offset, pitch in zip(
        sung.notes.onset, sung.notes.offset, sung.notes.pitch, strict=True
    ):
        inside = hertz[int(200 * onset) + 16 : int(200 * offset) - 16]
        sung_pitch = 69 + 12 * np.log2(np.median(inside[inside > 0]) / 440)
        assert sung_pitch == pytest.approx(pitch, abs=0.3)
    rest = sung.audio[int(3.15 * SAMPLE_RATE) : int(3.3 * SAMPLE_RATE)]
    assert np.abs(rest).max() < 0.05 * np.abs(sung.audio).max()


@pytest.mark.parametrize("seed", range(3))
def test_any_melody_can_be_sung(singer: Singer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    melody = shift_to_range(line(random_melody(SECONDS, rng)), singer, rng)
    sung = sing(melody, singer, Habits(rng), SECONDS, 20.0, rng)
    assert len(sung.notes)
    assert np.isfinite(sung.audio).all()
    assert (sung.notes.offset > sung.notes.onset).all()
    assert (sung.notes.offset[:-1] <= sung.notes.onset[1:] + 1e-9).all()
    assert (sung.notes.offset <= SECONDS + 1e-9).all()


def test_notes_have_the_nearest_pitch(singer: Singer) -> None:
    rng = np.random.default_rng(4)
    written = notes_of([0.5, 1.5, 2.5], [1.4, 2.4, 3.4], [52, 55, 50], 90)
    steady = {"detune": 0, "drift": 0, "melisma": 0}
    flat = sing(written, singer, habits(rng, tuning=-0.4, **steady), 4.0, -20.0, rng)
    assert (flat.notes.pitch == written.pitch - 1).all()
    sharp = sing(written, singer, habits(rng, tuning=0.4, **steady), 4.0, 0.0, rng)
    assert (sharp.notes.pitch == written.pitch).all()


def test_slides_to_the_same_pitch_join_notes(singer: Singer) -> None:
    rng = np.random.default_rng(5)
    onsets = np.arange(0.5, 8.5, 0.5)
    written = notes_of(onsets, onsets + 0.5, [52, 53] * 8, 90)
    notes = sing(written, singer, habits(rng, detune=0.5, melisma=1), 9.0, 0.0, rng).notes
    assert len(notes) < len(written)
    assert (np.diff(notes.pitch) != 0).all()
    assert notes.offset[:-1] == pytest.approx(notes.onset[1:])


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 2), st.integers(30, 90)), max_size=20))
def test_a_line_is_monophonic(notes: list[tuple[float, float, int]]) -> None:
    onset, length, pitch = np.array(sorted(notes)).reshape(-1, 3).T
    melody = line(notes_of(onset, onset + length, pitch))
    assert (np.diff(melody.onset) > CHORD_S).all()
    assert (melody.offset[:-1] <= melody.onset[1:]).all()
    assert (melody.offset - melody.onset >= SHORTEST_S).all()
