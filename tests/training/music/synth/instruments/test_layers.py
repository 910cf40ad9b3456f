from __future__ import annotations

import numpy as np
import pytest

from training.music.synth.config import SynthConfig
from training.music.synth.instruments.bank import load_bank
from training.music.synth.instruments.layers import mixed, neighbours


def test_the_next_layer_of_the_pitch_is_mixed_by_velocity(synth_config: SynthConfig) -> None:
    piano = load_bank(synth_config.root, synth_config.cache).instruments["piano_one"]
    # The layers are at velocities 40 and 100.
    pick = piano.pick(np.array([60.0, 60.0, 60.0]), np.array([40.0, 40.0, 100.0]))
    other, share = neighbours(piano, pick, np.array([40.0, 55.0, 70.0]))
    np.testing.assert_allclose(share, [0, 0.25, 0.5])
    np.testing.assert_array_equal(piano.midi[other[1:]], piano.midi[pick[1:]])
    np.testing.assert_array_equal(piano.velocity[other[1:]], [100, 40])


def test_beyond_the_last_layer_nothing_is_mixed(synth_config: SynthConfig) -> None:
    bank = load_bank(synth_config.root, synth_config.cache)
    for name, velocity in (("piano_one", 120.0), ("piano_one", 10.0), ("violin_one", 60.0)):
        entry = bank.instruments[name]
        pick = entry.pick(np.array([60.0]), np.array([velocity]))
        _, share = neighbours(entry, pick, np.array([velocity]))
        assert share[0] == 0


def test_coherent_recordings_alone_are_mixed() -> None:
    time = np.arange(5000) / 11025
    sound = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    np.testing.assert_allclose(mixed(sound, -3 * sound, 0.5), 2 * sound, rtol=1e-5)
    quarter = np.cos(2 * np.pi * 440 * time).astype(np.float32)
    assert mixed(sound, quarter, 0.5) is sound
    assert np.abs(mixed(sound, np.zeros_like(sound), 0.5)).max() == pytest.approx(1, abs=1e-3)
