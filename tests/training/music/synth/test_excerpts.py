"""Excerpts: which notes sound in which audio."""

from dataclasses import replace

import numpy as np
import pytest

from training.music.notes import Notes, notes_of
from training.music.synth.config import SynthConfig
from training.music.synth.excerpts import Material, load_material, overlaid, training_excerpt
from training.music.synth.render import Rendered


@pytest.fixture(scope="module")
def material(synth_config: SynthConfig) -> Material:
    return load_material(synth_config)


def rendered(pitches: list[int], part: int, level: float) -> Rendered:
    n = len(pitches)
    notes = notes_of(np.arange(n), np.arange(n) + 0.5, pitches, 70, part)
    return Rendered(np.full(100, level, np.float32), notes)


def test_overlaid_excerpts_sound_together_and_keep_all_their_notes() -> None:
    both = overlaid(rendered([60, 62, 64], 1, 0.5), rendered([48, 50], 0, 0.1), level_db=-6.0)
    np.testing.assert_allclose(both.audio, 0.5 + 0.5 * 10 ** (-6 / 20), rtol=1e-5)
    assert both.notes.pitch.tolist() == [60, 48, 62, 50, 64]
    assert both.notes.part.tolist() == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("silent", [0, 1])
def test_an_excerpt_without_sound_may_be_overlaid(silent: int) -> None:
    parts = [rendered([60], 0, 0.5), rendered([48], 0, 0.5)]
    parts[silent] = Rendered(np.zeros(100, np.float32), Notes.empty())
    both = overlaid(parts[0], parts[1], 0.0)
    assert np.isfinite(both.audio).all()
    assert len(both.notes) == 1


def test_keys_or_the_pedal_end_a_note(material: Material, synth_config: SynthConfig) -> None:
    alone = replace(
        synth_config, random_probability=0, background_probability=0, overlay_probability=0
    )
    longer = 0
    for seed in range(8):
        by_sound, by_key = (
            training_excerpt(material, replace(alone, labels=labels), np.random.default_rng(seed))
            for labels in ("sounding", "keys")
        )
        np.testing.assert_array_equal(by_sound.audio, by_key.audio)
        np.testing.assert_array_equal(by_sound.notes.onset, by_key.notes.onset)
        assert (by_key.notes.offset <= by_sound.notes.offset).all()
        assert (by_key.notes.offset > by_key.notes.onset).all()
        longer += int((by_sound.notes.offset > by_key.notes.offset + 0.05).sum())
    assert longer > 20
