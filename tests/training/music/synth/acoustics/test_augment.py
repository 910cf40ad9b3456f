from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from training.music.synth.acoustics import noise
from training.music.synth.acoustics.augment import augment, impulse_response
from training.music.synth.config import RecordingConfig, SynthConfig


@pytest.mark.parametrize("seed", range(8))
def test_direct_sound_is_not_delayed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    response = impulse_response(SAMPLE_RATE, rng)
    # A burst of noise: its cross-correlation with the result peaks at the delay.
    burst = np.zeros(4096, np.float32)
    burst[1000:1400] = np.random.default_rng(0).standard_normal(400)
    heard = np.convolve(burst, response)[: len(burst)]
    first = np.argmax(np.abs(heard) > 0.1 * np.abs(heard).max())
    assert abs(int(first) - 1000) < 0.002 * SAMPLE_RATE


@pytest.mark.parametrize("seed", range(6))
def test_augmented_audio_is_finite_bounded_and_as_long(seed: int) -> None:
    rng = np.random.default_rng(seed)
    audio = rng.standard_normal(3 * SAMPLE_RATE).astype(np.float32)
    out = augment(audio, SAMPLE_RATE, rng)
    assert out.shape == audio.shape
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert 10 ** (-41 / 20) < np.abs(out).max() <= 1


NOTHING = RecordingConfig(
    room=0, equaliser=0, compressor=0, saturation=0, quiet=0, clipping=0, noise=0, hum=0, clicks=0,
    drums=0, voice=0, telephone=0, mp3=0,
)  # fmt: skip


def differs(name: str, value: float) -> bool:
    """Whether a setting of 1 changes the sound beyond its level, sign and offset."""
    before = np.random.default_rng(0).standard_normal(SAMPLE_RATE).astype(np.float32)
    config = replace(NOTHING, **{name: value})
    after = augment(before, SAMPLE_RATE, np.random.default_rng(5), config)
    return abs(float(np.corrcoef(before, after)[0, 1])) < 0.99999


@pytest.mark.parametrize(
    "name",
    ["room", "equaliser", "compressor", "saturation", "clipping", "noise", "hum", "clicks",
     "drums", "voice", "telephone", "mp3"],
)  # fmt: skip
def test_each_setting_does_its_own_part(name: str) -> None:
    assert differs(name, 1.0)
    assert not differs(name, 0.0)


KINDS = SynthConfig(root=Path(), cache=Path()).background_kinds


@pytest.mark.parametrize("kind", KINDS)
def test_backgrounds(kind: str) -> None:
    rng = np.random.default_rng(1)
    out = noise.background(2 * SAMPLE_RATE, SAMPLE_RATE, {kind: 0.3}, rng)
    assert out.shape == (2 * SAMPLE_RATE,)
    assert out.dtype == np.float32
    assert np.abs(out).max() == pytest.approx(0 if kind == "silence" else 1, abs=1e-5)
