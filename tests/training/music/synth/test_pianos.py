"""Pianos: what the dampers and the pedal leave of a sound, and of its label."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from tests.training.music.synth.conftest import level_db
from training.music.notes import Notes, next_strokes, notes_of
from training.music.synth.bank import Bank
from training.music.synth.pianos import Dampers, Dampings, contact_time, pedal_depth
from training.music.synth.render import Rendered, Voice, render


def dampers(**settings: float) -> Dampers:
    """As of a grand, without residue and delay."""
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


def around(audio: NDArray[np.float32], second: float) -> float:
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
    assert around(caught.audio, 0.9) > around(damped.audio, 0.9) + 10
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
    assert around(sound, 0.48) == pytest.approx(-3, abs=0.1)
    steps = np.abs(np.diff(sound[ends.begin[0] - 5 : ends.begin[0] + 5]))
    assert steps.max() < 1.1 * 2 * np.pi * 262 / SAMPLE_RATE  # no click
    assert around(sound, 0.7) == pytest.approx(-3 + 20 * np.log10(0.3), abs=0.5)
    assert around(sound, 1.5) < -30  # damped with the second
