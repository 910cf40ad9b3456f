"""Tests of rooms, background sounds, MP3 coding and augmentation."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from model.config import SAMPLE_RATE
from training.music.synth.augment import Degradation, Surroundings, augment, impulse_response, mp3
from training.music.synth.noise import KINDS, Backgrounds, load_backgrounds, random_background


@pytest.mark.parametrize("seed", range(4))
def test_rooms_do_not_delay_the_direct_sound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    response = impulse_response(rng, Degradation())
    burst = np.zeros(4096, np.float32)
    burst[1000:1400] = np.random.default_rng(0).standard_normal(400)
    output = np.convolve(burst, response)[: len(burst)]
    first = np.argmax(np.abs(output) > 0.1 * np.abs(output).max())
    assert abs(int(first) - 1000) < 0.002 * SAMPLE_RATE


NOTHING = Degradation(*(0 for _ in fields(Degradation)))


@pytest.mark.parametrize("name", sorted({f.name for f in fields(Degradation)} - {"suppressor"}))
def test_each_setting_changes_the_audio(sounds: Backgrounds, name: str) -> None:
    """The correlation ignores level, sign and offset, which always vary. Some noises are rare, so
    that the test needs several seeds."""
    before, surroundings = noise(SAMPLE_RATE), Surroundings(sounds=sounds)
    for value in (0, 1):
        config = replace(NOTHING, **{name: value})
        correlations = []
        for seed in range(4):
            after = augment(before, np.random.default_rng(seed), surroundings, config)
            correlations.append(abs(float(np.corrcoef(before, after)[0, 1])))
        assert (min(correlations) > 1 - 1e-9) == (not value or name == "quiet")


@pytest.mark.parametrize("kind", KINDS)
def test_backgrounds_have_the_length_and_peak(sounds: Backgrounds, kind: str) -> None:
    rng = np.random.default_rng(1)
    out = random_background(2 * SAMPLE_RATE, rng, sounds, kind=kind)
    assert out.shape == (2 * SAMPLE_RATE,)
    assert out.dtype == np.float32
    assert np.abs(out).max() == pytest.approx(0 if kind == "silence" else 1, abs=1e-5)


def noise(samples: int = 20_000) -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_normal(samples)).astype(np.float32)


def delay(before: np.ndarray, after: np.ndarray) -> int:
    size = 2 * len(before)
    spectra = np.conj(np.fft.rfft(before, size)) * np.fft.rfft(after, size)
    peak = int(np.fft.irfft(spectra).argmax())
    return peak if peak < len(before) else peak - size


@pytest.mark.parametrize("compression", [0.0, 0.9])
@pytest.mark.parametrize("samples", [9_999, 600])
def test_mp3_is_aligned_to_the_sample(compression: float, samples: int) -> None:
    before = noise(samples)
    after = mp3(before, compression)
    assert after.shape == before.shape
    assert after.dtype == np.float32
    assert delay(before, after) == 0
    assert 0.6 < np.corrcoef(before, after)[0, 1] < 0.99


SEGMENTS: tuple[tuple[str, str, str, bool, int], ...] = (
    ("rain", "rain", "drops", False, 0),
    ("doors", "doors", "bang", False, 0),
    ("speech_digits", "speech_digits", "1_jackson_0", True, 0),
    ("speech_digits", "speech_digits", "1_theo_0", True, 0),
    ("drums_one", "drum_hit", "Kick", False, 36),
    ("drums_one", "drum_hit", "Hat", False, 42),
    ("percussion_avl", "drum_hit", "Cowbell", False, 56),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with 0.5 s of noise for each entry of SEGMENTS."""
    root, length = tmp_path_factory.mktemp("sounds"), SAMPLE_RATE // 2
    rng = np.random.default_rng(0)
    for stem in {segment[0] for segment in SEGMENTS}:
        soundfile.write(root / f"{stem}.wav", rng.uniform(-0.9, 0.9, 2 * length), SAMPLE_RATE)
    entries = [
        {"file": f"{stem}.wav", "kind": kind, "name": name, "speech": speech, "gm_key": key}
        | {"start": length * (index % 2), "length": length}
        for index, (stem, kind, name, speech, key) in enumerate(SEGMENTS)
    ]
    content = {"sample_rate": SAMPLE_RATE, "segments": entries}
    (root / "noise.json").write_text(json.dumps(content))
    return root


@pytest.fixture(scope="module")
def sounds(folder: Path) -> Backgrounds:
    return load_backgrounds(folder)


def test_voices_and_drums_are_held_out(folder: Path, sounds: Backgrounds) -> None:
    held_out = load_backgrounds(folder, held_out=True)
    assert (set(sounds.voices), set(held_out.voices)) == ({"jackson"}, {"theo"})
    assert (set(sounds.kits), set(held_out.kits)) == ({"drums_one"}, {"percussion_avl"})
    assert (set(sounds.kinds), set(held_out.kinds)) == ({"rain", "doors"}, set())


@pytest.mark.parametrize(
    "config",
    [Degradation(), Degradation(noise=1.0, drums=1.0, voice=1.0)],
    ids=["default", "recorded sounds"],
)
@pytest.mark.parametrize("seed", range(3))
def test_augmented_audio_is_finite_and_bounded(
    sounds: Backgrounds, config: Degradation, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    audio = rng.standard_normal(3 * SAMPLE_RATE).astype(np.float32)
    out = augment(audio, rng, Surroundings(sounds=sounds), config)
    assert out.shape == audio.shape
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert 10 ** (-41 / 20) < np.abs(out).max() <= 1
