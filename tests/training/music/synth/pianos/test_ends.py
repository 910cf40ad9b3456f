from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from tests.training.music.synth.pianos.sounds import around, contact_s, held, press, tone
from training.music.synth.config import SynthConfig
from training.music.synth.instruments.bank import Bank, load_bank
from training.music.synth.pianos.dampers import Dampers
from training.music.synth.pianos.ends import Dampings, next_strokes
from training.music.synth.render import Rendered, Voice, render
from training.music.synth.scores import Notes

CLEAN = Dampers(residue=1e-3, delay_s=0.0)


@pytest.fixture(scope="module")
def bank(synth_config: SynthConfig) -> Bank:
    return load_bank(synth_config.root, synth_config.cache)


def piano_sound(bank: Bank, notes: Notes, pedal: NDArray[np.float64], **voice: Any) -> Rendered:
    settings: dict[str, Any] = {"dampers": CLEAN, "detune_cents": 0.0, **voice}
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


def test_a_note_under_half_a_pedal_ends_when_it_is_gone(bank: Bank) -> None:
    notes = held(72, 0.1, 0.3).lengthened(np.array([1.9]))
    rendered = piano_sound(bank, notes, press((0.2, 1.9, 0.5)))
    assert 0.4 < rendered.notes.offset[0] < 1.7
    assert rendered.notes.released[0] == 0.3


def test_a_string_struck_again_rings_beneath_the_new_note() -> None:
    both = [held(60, 0.0, 0.5), held(60, 0.5, 1.0)]
    names = Notes.__dataclass_fields__
    notes = Notes(*(np.concatenate([getattr(n, name) for n in both]) for name in names))
    dampers = Dampers(restrike_s=0.01, restrike_residue=0.3)
    assert next_strokes(notes).tolist() == [1, 2]
    sound = tone(60, 2.0)
    ends = Dampings(notes, dampers, contact_s(press(), 2.0), SAMPLE_RATE)
    assert ends.begin[0] == round(0.5 * SAMPLE_RATE)
    ends.apply(0, sound[ends.begin[0] : ends.end[0]])
    sound[ends.end[0] :] = 0
    assert around(sound, 0.48) == pytest.approx(-3, abs=0.1)
    steps = np.abs(np.diff(sound[ends.begin[0] - 5 : ends.begin[0] + 5]))
    assert steps.max() < 1.1 * 2 * np.pi * 262 / SAMPLE_RATE  # no click
    assert around(sound, 0.7) == pytest.approx(-3 + 20 * np.log10(0.3), abs=0.5)
    assert around(sound, 1.5) < -30  # damped with the second
