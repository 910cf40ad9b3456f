from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.music.synth import piano
from training.music.synth.bank import Bank, load_bank
from training.music.synth.config import SynthConfig
from training.music.synth.ends import Dampings, next_strokes
from training.music.synth.render import Rendered, Voice, render
from training.music.synth.scores import Notes

CLEAN = piano.Dampers(residue=1e-3, delay_s=0.0)


@pytest.fixture(scope="module")
def bank(synth_config: SynthConfig) -> Bank:
    return load_bank(synth_config.root, synth_config.cache)


def press(*rows: tuple[float, float, float]) -> NDArray[np.float64]:
    return np.array(rows, float).reshape(-1, 3)


def contact_s(pedal: NDArray[np.float64], seconds: float) -> NDArray[np.float32]:
    depth = piano.pedal_depth(pedal, int(seconds * SAMPLE_RATE), SAMPLE_RATE)
    return piano.contact_time(depth, SAMPLE_RATE)


def tone(pitch: float, seconds: float) -> NDArray[np.float32]:
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return np.sin(2 * np.pi * 440 * 2 ** ((pitch - 69) / 12) * time).astype(np.float32)


def level_db(audio: NDArray[np.float32]) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(audio**2)) + 1e-12))


def around(audio: NDArray[np.float32], second: float) -> float:
    """Level of 40 ms."""
    middle = int(second * SAMPLE_RATE)
    return level_db(audio[middle - 220 : middle + 220])


def held(pitch: int, onset: float, released: float) -> Notes:
    """One note with its key."""
    return Notes(
        np.array([onset]),
        np.array([released]),
        np.array([pitch], np.int16),
        np.array([90], np.float32),
        np.zeros(1, np.int16),
    )


def t60(pitch: int, dampers: piano.Dampers) -> float:
    """Seconds from the release of a key to 60 dB below, by the fall of the first 20 dB."""
    sound = tone(pitch, 8.0)
    notes = held(pitch, 0.0, 0.5)
    ends = Dampings(notes, dampers, contact_s(press(), 8.0), SAMPLE_RATE)
    ends.apply(0, sound[ends.begin[0] : ends.end[0]])
    sound[ends.end[0] :] = 0
    times = np.arange(0.5, 7.5, 0.02)
    levels = np.array([around(sound, t) for t in times])
    return 3 * float(times[np.argmax(levels < levels[0] - 20)] - times[0])


def test_t60_falls_with_pitch() -> None:
    dampers = piano.Dampers(residue=1e-3, delay_s=0.0, middle_s=0.12)
    measured = [t60(pitch, dampers) for pitch in (28, 40, 52, 60, 72, 84)]
    assert (np.diff(measured) < 0).all()
    assert t60(60, dampers) == pytest.approx(6.9 * 0.12, rel=0.15)
    assert measured[0] > 3 * measured[3]


def test_the_highest_strings_have_no_dampers() -> None:
    rng = np.random.default_rng(0)
    drawn = [piano.random_dampers(rng) for _ in range(100)]
    assert {d.highest for d in drawn} == {88, 89, 90, 91}
    for dampers in drawn:
        constants = piano.time_constants(dampers, np.arange(21, 109))
        assert np.isfinite(constants[: dampers.highest - 20]).all()
        assert np.isinf(constants[dampers.highest - 20 :]).all()


def test_middle_c_is_damped_as_fast_as_pianos_do() -> None:
    rng = np.random.default_rng(0)
    fall_ms = np.array([1000 * t60(60, piano.random_dampers(rng)) / 6 for _ in range(60)])
    assert np.percentile(fall_ms, 10) < 150  # 10 dB down: well-regulated
    assert np.percentile(fall_ms, 90) > 250  # and worn
    assert fall_ms.max() < 700


@pytest.mark.parametrize("power", [2, 3])
def test_high_partials_are_damped_first(power: int) -> None:
    dampers = piano.Dampers(residue=1e-3, treble_power=power)
    fundamental, tenth = tone(48, 1.0), tone(48 + 12 * np.log2(10), 1.0)
    contact = contact_s(press(), 1.0)
    for sound in (fundamental, tenth):
        piano.damp(sound, contact, 0.15, 440 * 2 ** (-21 / 12), dampers, SAMPLE_RATE)
    assert around(fundamental, 0.2) == pytest.approx(-3 - 8.7 * 0.2 / 0.15, abs=2.5)
    assert around(tenth, 0.2) < around(fundamental, 0.2) - 4


def test_something_rings_on_after_the_damper() -> None:
    clean, leaky = tone(60, 1.0), tone(60, 1.0)
    contact = contact_s(press(), 1.0)
    piano.damp(clean, contact, 0.05, 262, CLEAN, SAMPLE_RATE)
    piano.damp(leaky, contact, 0.05, 262, piano.Dampers(residue=0.1), SAMPLE_RATE)
    assert around(leaky, 0.06) == pytest.approx(around(clean, 0.06), abs=3)
    assert around(leaky, 0.3) > around(clean, 0.3) + 15


def test_half_a_pedal_is_half_a_damper() -> None:
    free, half, down = (
        piano.contact_time(piano.pedal_depth(press((-1, 5, d)), 22050, SAMPLE_RATE), SAMPLE_RATE)
        for d in (0.0, 0.5, 1.0)
    )
    assert down[-1] == 0
    assert 2.5 < free[-1] / half[-1] < 6


def test_a_quick_change_of_the_pedal_leaves_some_of_the_sound() -> None:
    def left(up_s: float) -> float:
        return float(contact_s(press((-1, 1, 1), (1 + up_s, 3, 1)), 2.0)[-1])

    assert left(0.02) < 0.02 < left(0.06) < left(0.3)


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
    dampers = piano.Dampers(restrike_s=0.01, restrike_residue=0.3)
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


def test_free_strings_sound_along_until_the_pedal_is_up() -> None:
    sound = tone(48, 2.5)
    sound[SAMPLE_RATE // 2 :] = 0
    response = piano.strings_response(0, SAMPLE_RATE)
    depth = piano.pedal_depth(press((0.1, 1.2, 1)), len(sound), SAMPLE_RATE)
    rung = piano.sympathetic(sound, depth, -20, 0.1, response, SAMPLE_RATE)
    assert around(rung, 0.9) > -60
    assert around(rung, 0.05) < around(rung, 0.9) - 40
    assert around(rung, 1.8) < around(rung, 1.1) - 30
    assert level_db(rung) == pytest.approx(level_db(sound * (depth > 0)) - 20, abs=1)
