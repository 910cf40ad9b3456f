"""Tests of imitated harmonicas."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.music.notes import Notes
from training.music.synth.harmonica import (
    BLOW,
    DRAW,
    KEYS,
    harmonica_part,
    played_by_hands,
)
from training.music.synth.sing import line, random_melody

SECONDS = 12.0


def melody(rng: np.random.Generator) -> Notes:
    return line(random_melody(SECONDS, rng))


@given(st.integers(0, 2**32 - 1))
def test_chords_are_neighbouring_holes_of_one_breath(seed: int) -> None:
    rng = np.random.default_rng(seed)
    played = melody(rng)
    part = harmonica_part(played, rng)
    breaths = [
        [set((key + holes).tolist()) for holes in (BLOW, DRAW)]
        for key in range(KEYS[0], KEYS[1] + 1)
    ]
    chords = [
        set(part.pitch[np.abs(part.offset - offset) < 1e-9].tolist()) for offset in played.offset
    ]
    assert any(all(any(chord <= holes for holes in key) for chord in chords) for key in breaths)
    assert all(1 <= len(chord) <= 4 for chord in chords)


@given(st.integers(0, 2**32 - 1))
def test_the_highest_notes_follow_the_melody(seed: int) -> None:
    rng = np.random.default_rng(seed)
    played = melody(rng)
    part = harmonica_part(played, rng)
    assert np.all(np.diff(part.onset) >= 0)
    assert np.all(part.offset > part.onset)
    top = np.array([part.pitch[part.offset == offset].max() for offset in played.offset])
    moved = top - played.pitch
    shift = np.median(moved)
    # Missing semitones move a note by up to 2, and an octave beyond the holes by more.
    assert np.mean(np.abs(moved - shift) <= 4) > 0.5
    for onset in played.onset:
        assert np.min(np.abs(part.onset - onset)) < 1e-9


def test_hands_and_amplifiers_change_the_level_but_keep_the_length() -> None:
    rng = np.random.default_rng(0)
    tone = np.sin(np.arange(30_000) / 5).astype(np.float32)
    heard = [played_by_hands(tone, rng) for _ in range(20)]
    assert all(each.shape == tone.shape and each.dtype == np.float32 for each in heard)
    loudest = [float(np.abs(each).max()) for each in heard]
    assert max(loudest) <= 10 ** (8 / 40) + 1e-3
    assert any(np.array_equal(each, tone) for each in heard)
    assert not all(np.array_equal(each, tone) for each in heard)
