from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import INSTRUMENTS, SAMPLE_RATE
from tests.training.music.synth.conftest import level_db
from training.music.notes import Notes, next_strokes, notes_of
from training.music.synth.bank import SILENCE_DB, Bank
from training.music.synth.lines import Line, apply_phrasing, random_line
from training.music.synth.pianos import Dampers, Dampings, contact_time, pedal_depth
from training.music.synth.render import FADED_DB, Rendered, Voice, render, shorten_repeats

NO_PEDAL = np.zeros((0, 3))


def notes(*events: tuple[float, float, int, float, int]) -> Notes:
    return notes_of(*np.array(events, float).reshape(-1, 5).T)


def play(
    bank: Bank,
    name: str,
    *events: tuple[float, float, int, float, int],
    seconds: float = 2.0,
    tuning: float = 0.0,
    **voice: Any,
) -> Rendered:
    voices = [Voice(bank.instruments[name], **{"detune_cents": 0.0, **voice})]
    rng = np.random.default_rng(0)
    return render(bank, notes(*events), voices, seconds, tuning, rng, NO_PEDAL)


def fundamental(audio: NDArray[np.float32]) -> float:
    """MIDI pitch of the strongest partial, which in these tones is the first."""
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 1 << 18))
    return float(69 + 12 * np.log2(spectrum.argmax() * SAMPLE_RATE / (1 << 18) / 440))


@pytest.mark.parametrize(
    ("name", "pitch"), [("piano_one", 61), ("violin_one", 77), ("clarinet_one", 57)]
)
def test_a_note_sounds_at_its_pitch(bank: Bank, name: str, pitch: int) -> None:
    audio = play(bank, name, (0.3, 1.5, pitch, 90, 0)).audio
    heard = fundamental(audio[int(0.4 * SAMPLE_RATE) : int(1.2 * SAMPLE_RATE)])
    assert heard == pytest.approx(pitch, abs=0.03)


@pytest.mark.parametrize("name", ["piano_one", "violin_one"])
@pytest.mark.parametrize("onset", [0.25, 0.61803])
def test_sound_begins_at_the_labelled_onset(bank: Bank, name: str, onset: float) -> None:
    rendered = play(bank, name, (onset, onset + 0.5, 67, 90, 0))
    envelope = np.abs(rendered.audio)
    first = np.argmax(envelope > 0.2 * envelope.max()) / SAMPLE_RATE
    assert rendered.notes.onset[0] == onset
    assert abs(first - onset) < 0.005


def test_a_decayed_note_ends_its_label_and_a_looped_one_lasts(bank: Bank) -> None:
    piano = play(bank, "piano_one", (0.0, 9.0, 60, 90, 0), seconds=10)
    end = piano.notes.offset[0]
    assert 1.5 < end < 2.2  # 1.8 s of audible sound, at up to 1.5 semitones of shift
    peak = np.abs(piano.audio).max()
    left = np.abs(piano.audio[int((end + 0.05) * SAMPLE_RATE) :]).max()
    assert left < 1.5 * peak * 10 ** (SILENCE_DB / 20)
    violin = play(bank, "violin_one", (0.0, 9.0, 60, 90, 0), seconds=10)
    assert violin.notes.offset[0] == 9.0
    early = level_db(violin.audio[SAMPLE_RATE : 2 * SAMPLE_RATE])
    late = level_db(violin.audio[int(7.5 * SAMPLE_RATE) : int(8.5 * SAMPLE_RATE)])
    assert late == pytest.approx(early, abs=2)


def test_a_blown_note_lasts_until_it_has_faded(bank: Bank) -> None:
    flute = replace(bank.instruments["violin_one"], number=INSTRUMENTS.index("flute"))
    held = notes((0.1, 2.0, 67, 90, 0))
    out = render(bank, held, [Voice(flute)], 3.0, 0.0, np.random.default_rng(0), NO_PEDAL)
    fade_s = FADED_DB / 20 * np.log(10) * Voice.release_s
    assert out.notes.offset[0] == pytest.approx(2.0 + fade_s)


def test_a_recording_may_end_near_a_slur(bank: Bank) -> None:
    violin = bank.instruments["violin_one"]
    short = replace(violin, loop_end=np.zeros_like(violin.loop_end))
    voices = [Voice(short, line=Line(connected=1, slurred=1))]
    for end in np.arange(1.7, 2.4, 0.02):  # recorded for about 2 s
        held = notes((0.1, end, 67, 90, 0), (end, 4.0, 69, 90, 0))
        out = render(bank, held, voices, 5.0, 0.0, np.random.default_rng(0), NO_PEDAL)
        assert 1.0 < out.notes.offset[0] <= end


def test_a_repeated_pitch_ends_the_note_before() -> None:
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


ALL = Line(connected=1.0, slurred=1.0)


def melody(*pitches: int, held: float = 0.3, every: float = 0.5) -> Notes:
    onset = 0.2 + every * np.arange(len(pitches))
    return notes_of(onset, onset + held, list(pitches), velocity=90)


def phrase(bank: Bank, line: Line, notes: Notes, seconds: float = 2.0) -> NDArray[np.float32]:
    voice = Voice(bank.instruments["violin_one"], release_s=0.02, detune_cents=0.0, line=line)
    rng = np.random.default_rng(0)
    return render(bank, notes, [voice], seconds, 0.0, rng, NO_PEDAL).audio


def around(audio: NDArray[np.float32], at_s: float, width_s: float = 0.03) -> Any:
    return audio[int((at_s - width_s / 2) * SAMPLE_RATE) : int((at_s + width_s / 2) * SAMPLE_RATE)]


def quietest_db(audio: NDArray[np.float32], begin_s: float, end_s: float) -> float:
    return min(level_db(around(audio, at)) for at in np.arange(begin_s, end_s, 0.01))


def test_the_level_stays_through_a_slur_and_falls_between_detached_notes(bank: Bank) -> None:
    notes = melody(67, 71)
    slurred, detached = phrase(bank, ALL, notes), phrase(bank, Line(), notes)
    assert quietest_db(slurred, 0.55, 0.85) > level_db(around(slurred, 0.45)) - 6
    assert quietest_db(detached, 0.55, 0.85) < level_db(around(detached, 0.45)) - 20


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        (melody(60, 62, held=0.2), "a rest lies between"),
        (notes_of([0.2, 0.2, 0.7], [0.6, 0.6, 1.0], [60, 64, 65]), "a chord"),
        (notes_of([0.1, 0.2, 0.7], [1.5, 0.6, 1.0], [48, 64, 65]), "another note sounds on"),
    ],
)
def test_only_a_line_of_single_notes_is_connected(notes: Notes, why: str) -> None:
    played, phrasing = apply_phrasing(notes, ALL, np.random.default_rng(0))
    np.testing.assert_array_equal(played.offset, notes.offset, why)
    assert not phrasing.slurred.any()


@given(
    st.lists(st.tuples(st.floats(0.05, 1), st.floats(0.01, 2), st.integers(40, 90)), max_size=12),
    st.integers(0, 2**32),
)
def test_phrasing_keeps_onsets_and_the_order_of_ends(
    steps: list[tuple[float, float, int]], seed: int
) -> None:
    gaps, lengths, pitches = np.array(steps).reshape(-1, 3).T
    onset = np.cumsum(gaps)
    notes = notes_of(onset, onset + lengths, pitches, 80)
    rng = np.random.default_rng(seed)
    played, phrasing = apply_phrasing(notes, random_line(True, rng), rng)
    np.testing.assert_array_equal(played.onset, notes.onset)
    assert (played.offset > played.onset).all()
    assert phrasing.slurred.sum() == phrasing.left.sum()


def dampers(**settings: float) -> Dampers:
    """Return the dampers of a grand piano, without residue and delay."""
    made = Dampers(np.random.default_rng(0))
    vars(made).update(middle_s=0.12, bass_semitones=14, treble_semitones=24, treble_power=2)
    vars(made).update(residue=1e-3, delay_s=0.0, highest=90, **settings)
    return made


def press(*rows: tuple[float, float, float]) -> NDArray[np.float64]:
    return np.array(rows, float).reshape(-1, 3)


def contact_s(pedal: NDArray[np.float64], seconds: float) -> NDArray[np.float32]:
    return contact_time(pedal_depth(pedal, int(seconds * SAMPLE_RATE)))


def tone(pitch: float, seconds: float) -> NDArray[np.float32]:
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return np.sin(2 * np.pi * 440 * 2 ** ((pitch - 69) / 12) * time).astype(np.float32)


def level_at(audio: NDArray[np.float32], second: float) -> float:
    """Level of 40 ms."""
    middle = int(second * SAMPLE_RATE)
    return level_db(audio[middle - 220 : middle + 220])


def held(pitch: int, onset: float, released: float) -> Notes:
    return notes_of([onset], [released], [pitch], 90)


def piano_sound(bank: Bank, notes: Notes, pedal: NDArray[np.float64], **voice: Any) -> Rendered:
    settings: dict[str, Any] = {"dampers": dampers(), "detune_cents": 0.0, **voice}
    voices = [Voice(bank.instruments["piano_one"], **settings)]
    return render(bank, notes, voices, 2.0, 0.0, np.random.default_rng(0), pedal)


def test_a_late_pedal_catches_the_sound_but_not_the_label(bank: Bank) -> None:
    notes = held(55, 0.1, 0.5)
    damped = piano_sound(bank, notes, press())
    caught = piano_sound(bank, notes, press((0.6, 1.8, 1)))
    assert level_at(caught.audio, 0.9) > level_at(damped.audio, 0.9) + 10
    assert caught.notes.offset[0] == damped.notes.offset[0] == 0.5
    assert caught.pedal is not None
    assert caught.pedal.tolist() == [[0.6, 1.8, 1.0]]


def test_a_string_struck_again_rings_beneath_the_new_note() -> None:
    notes = notes_of([0.0, 0.5], [0.5, 1.0], [60, 60], 90)
    again = dampers(restrike_s=0.01, restrike_residue=0.3)
    assert next_strokes(notes.pitch, notes.onset).tolist() == [1, 2]
    sound = tone(60, 2.0)
    ends = Dampings(notes, again, contact_s(press(), 2.0))
    assert ends.begin[0] == round(0.5 * SAMPLE_RATE)
    ends.apply(0, sound[ends.begin[0] : ends.end[0]])
    sound[ends.end[0] :] = 0
    assert level_at(sound, 0.48) == pytest.approx(-3, abs=0.1)
    steps = np.abs(np.diff(sound[ends.begin[0] - 5 : ends.begin[0] + 5]))
    assert steps.max() < 1.1 * 2 * np.pi * 262 / SAMPLE_RATE  # no click
    assert level_at(sound, 0.7) == pytest.approx(-3 + 20 * np.log10(0.3), abs=0.5)
    assert level_at(sound, 1.5) < -30  # damped with the second
