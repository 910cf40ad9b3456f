"""Tests of the rendering of notes: pitch, timing, phrasing and dampers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import INSTRUMENTS, SAMPLE_RATE
from tests import fakes
from tests.training.music.synth.conftest import level_db
from training.music.notes import Notes, next_of_same_pitch, notes_of
from training.music.synth.bank import SILENCE_DB, Bank
from training.music.synth.lines import Line, apply_phrasing, random_line
from training.music.synth.pianos import Dampers, Dampings, contact_time, pedal_depth
from training.music.synth.render import FADED_DB, Rendered, Voice, render, shorten_repeats

NO_PEDAL = np.zeros((0, 3))
SLURRED = Line(connected=1.0, slurred=1.0)


def notes(*events: tuple[float, float, int, float, int]) -> Notes:
    return notes_of(*np.array(events, float).reshape(-1, 5).T)


def play(
    bank: Bank,
    name: str,
    *events: tuple[float, float, int, float, int],
    seconds: float = 2.0,
) -> Rendered:
    voices = [Voice(bank.instruments[name], detune_cents=0.0)]
    return render(bank, notes(*events), voices, seconds, 0.0, np.random.default_rng(0), NO_PEDAL)


def pitch_of(audio: NDArray[np.float32]) -> float:
    """Return the MIDI pitch of the strongest partial. In these tones it is the first partial."""
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 1 << 18))
    return float(69 + 12 * np.log2(spectrum.argmax() * SAMPLE_RATE / (1 << 18) / 440))


@pytest.mark.parametrize(
    ("name", "pitch"), [("piano_one", 61), ("violin_one", 77), ("clarinet_one", 57)]
)
def test_notes_have_the_labelled_pitch(bank: Bank, name: str, pitch: int) -> None:
    audio = play(bank, name, (0.3, 1.5, pitch, 90, 0)).audio
    middle = audio[int(0.4 * SAMPLE_RATE) : int(1.2 * SAMPLE_RATE)]
    assert pitch_of(middle) == pytest.approx(pitch, abs=0.03)


@pytest.mark.parametrize("name", ["piano_one", "violin_one"])
@pytest.mark.parametrize("onset", [0.25, 0.61803])
def test_notes_start_at_the_labelled_onset(bank: Bank, name: str, onset: float) -> None:
    rendered = play(bank, name, (onset, onset + 0.5, 67, 90, 0))
    envelope = np.abs(rendered.audio)
    first = np.argmax(envelope > 0.2 * envelope.max()) / SAMPLE_RATE
    assert rendered.notes.onset[0] == onset
    assert abs(first - onset) < 0.005


def test_labels_end_with_the_decay_unless_notes_loop(bank: Bank) -> None:
    piano = play(bank, "piano_one", (0.0, 9.0, 60, 90, 0), seconds=10)
    end = piano.notes.offset[0]
    assert 1.5 < end < 2.2  # 1.8 s of audible sound, shifted by up to 1.5 semitones
    peak = np.abs(piano.audio).max()
    remaining = np.abs(piano.audio[int((end + 0.05) * SAMPLE_RATE) :]).max()
    assert remaining < 1.5 * peak * 10 ** (SILENCE_DB / 20)
    violin = play(bank, "violin_one", (0.0, 9.0, 60, 90, 0), seconds=10)
    assert violin.notes.offset[0] == 9.0
    early = level_db(violin.audio[SAMPLE_RATE : 2 * SAMPLE_RATE])
    late = level_db(violin.audio[int(7.5 * SAMPLE_RATE) : int(8.5 * SAMPLE_RATE)])
    assert late == pytest.approx(early, abs=2)


def test_labels_of_wind_instruments_include_the_fade(bank: Bank) -> None:
    flute = replace(bank.instruments["violin_one"], number=INSTRUMENTS.index("flute"))
    held = notes((0.1, 2.0, 67, 90, 0))
    out = render(bank, held, [Voice(flute)], 3.0, 0.0, np.random.default_rng(0), NO_PEDAL)
    fade_s = FADED_DB / 20 * np.log(10) * Voice.release_s
    assert out.notes.offset[0] == pytest.approx(2.0 + fade_s)


def test_slurs_work_near_the_end_of_a_recording(bank: Bank) -> None:
    violin = bank.instruments["violin_one"]
    without_loop = replace(violin, loop_end=np.zeros_like(violin.loop_end))
    voices = [Voice(without_loop, line=SLURRED)]
    for end in np.arange(1.7, 2.4, 0.02):  # The recorded note is about 2 s long.
        held = notes((0.1, end, 67, 90, 0), (end, 4.0, 69, 90, 0))
        out = render(bank, held, voices, 5.0, 0.0, np.random.default_rng(0), NO_PEDAL)
        assert 1.0 < out.notes.offset[0] <= end


def test_a_repeated_note_shortens_the_previous_note() -> None:
    played = notes(
        (0.0, 5.0, 60, 80, 0),
        (1.0, 1.5, 60, 80, 0),
        (1.2, 9.0, 61, 80, 0),
        (1.3, 9.0, 60, 80, 1),
        (3.0, 3.1, 62, 80, 0),
        (3.01, 3.8, 62, 70, 0),
    )
    out = shorten_repeats(played)
    columns = (out.part, out.pitch, out.onset, out.offset)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == [
        (0, 60, 0.0, 1.0),
        (0, 60, 1.0, 1.5),
        (0, 61, 1.2, 9.0),
        (0, 62, 3.01, 3.8),
        (1, 60, 1.3, 9.0),
    ]


def melody(*pitches: int, held: float = 0.3) -> Notes:
    onset = 0.2 + 0.5 * np.arange(len(pitches))
    return notes_of(onset, onset + held, list(pitches), velocity=90)


def phrase(bank: Bank, line: Line, notes: Notes) -> NDArray[np.float32]:
    voice = Voice(bank.instruments["violin_one"], release_s=0.02, detune_cents=0.0, line=line)
    rng = np.random.default_rng(0)
    return render(bank, notes, [voice], 2.0, 0.0, rng, NO_PEDAL).audio


def level_at(audio: NDArray[np.float32], time_s: float) -> float:
    """Return the level of 40 ms of audio."""
    middle = int(time_s * SAMPLE_RATE)
    return level_db(audio[middle - 220 : middle + 220])


def min_level_db(audio: NDArray[np.float32], start_s: float, end_s: float) -> float:
    return min(level_at(audio, time_s) for time_s in np.arange(start_s, end_s, 0.01))


def test_slurred_notes_have_no_gap(bank: Bank) -> None:
    notes = melody(67, 71)
    slurred, detached = phrase(bank, SLURRED, notes), phrase(bank, Line(), notes)
    assert min_level_db(slurred, 0.55, 0.85) > level_at(slurred, 0.45) - 6
    assert min_level_db(detached, 0.55, 0.85) < level_at(detached, 0.45) - 20


@pytest.mark.parametrize(
    "notes",
    [
        melody(60, 62, held=0.2),
        notes_of([0.2, 0.2, 0.7], [0.6, 0.6, 1.0], [60, 64, 65]),
        notes_of([0.1, 0.2, 0.7], [1.5, 0.6, 1.0], [48, 64, 65]),
    ],
    ids=["rest", "chord", "overlapping note"],
)
def test_only_adjacent_monophonic_notes_are_slurred(notes: Notes) -> None:
    played, phrasing = apply_phrasing(notes, SLURRED, np.random.default_rng(0))
    np.testing.assert_array_equal(played.offset, notes.offset)
    assert not phrasing.slurred.any()


@given(
    st.lists(st.tuples(st.floats(0.05, 1), st.floats(0.01, 2), st.integers(40, 90)), max_size=12),
    st.integers(0, 2**32),
)
def test_phrasing_preserves_onsets(steps: list[tuple[float, float, int]], seed: int) -> None:
    gaps, lengths, pitches = np.array(steps).reshape(-1, 3).T
    onset = np.cumsum(gaps)
    notes = notes_of(onset, onset + lengths, pitches, 80)
    rng = np.random.default_rng(seed)
    played, phrasing = apply_phrasing(notes, random_line(True, rng), rng)
    np.testing.assert_array_equal(played.onset, notes.onset)
    assert (played.offset > played.onset).all()
    assert phrasing.slurred.sum() == phrasing.left.sum()


def dampers(**settings: float) -> Dampers:
    """Return the dampers of a grand piano, with a small residue and without delay."""
    grand = Dampers(np.random.default_rng(0))
    vars(grand).update(middle_s=0.12, bass_semitones=14, treble_semitones=24, treble_power=2)
    vars(grand).update(residue=1e-3, delay_s=0.0, highest=90, **settings)
    return grand


def press(*rows: tuple[float, float, float]) -> NDArray[np.float64]:
    return np.array(rows, float).reshape(-1, 3)


def piano_sound(bank: Bank, notes: Notes, pedal: NDArray[np.float64]) -> Rendered:
    voices = [Voice(bank.instruments["piano_one"], dampers=dampers(), detune_cents=0.0)]
    return render(bank, notes, voices, 2.0, 0.0, np.random.default_rng(0), pedal)


def test_a_late_pedal_sustains_the_sound_only(bank: Bank) -> None:
    notes = notes_of([0.1], [0.5], [55], 90)
    damped = piano_sound(bank, notes, press())
    sustained = piano_sound(bank, notes, press((0.6, 1.8, 1)))
    assert level_at(sustained.audio, 0.9) > level_at(damped.audio, 0.9) + 10
    assert sustained.notes.offset[0] == damped.notes.offset[0] == 0.5
    assert sustained.pedal is not None
    assert sustained.pedal.tolist() == [[0.6, 1.8, 1.0]]


def test_a_string_keeps_sounding_after_a_repeated_note() -> None:
    notes = notes_of([0.0, 0.5], [0.5, 1.0], [60, 60], 90)
    assert next_of_same_pitch(notes.pitch, notes.onset).tolist() == [1, 2]
    sound = fakes.play([(60, 0.0, 2.0)], 2.0, SAMPLE_RATE, level=1.0)
    contact_s = contact_time(pedal_depth(NO_PEDAL, 2 * SAMPLE_RATE))
    damping = Dampings(notes, dampers(restrike_s=0.01, restrike_residue=0.3), contact_s)
    start, end = damping.begin[0], damping.end[0]
    assert start == round(0.5 * SAMPLE_RATE)
    damping.apply(0, sound[start:end])
    sound[end:] = 0
    assert level_at(sound, 0.48) == pytest.approx(-3, abs=0.1)
    steps = np.abs(np.diff(sound[start - 5 : start + 5]))
    assert steps.max() < 1.1 * 2 * np.pi * 262 / SAMPLE_RATE  # no click
    assert level_at(sound, 0.7) == pytest.approx(-3 + 20 * np.log10(0.3), abs=0.5)
    assert level_at(sound, 1.5) < -30  # damped with the second note
