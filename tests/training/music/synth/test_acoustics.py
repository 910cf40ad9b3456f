import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.music.synth.augment import Degradation, Surroundings, augment, impulse_response, mp3
from training.music.synth.noise import KINDS, Backgrounds, background, load_backgrounds


@pytest.mark.parametrize("seed", range(8))
def test_direct_sound_is_not_delayed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    response = impulse_response(rng)
    # A burst of noise: its cross-correlation with the result peaks at the delay.
    burst = np.zeros(4096, np.float32)
    burst[1000:1400] = np.random.default_rng(0).standard_normal(400)
    heard = np.convolve(burst, response)[: len(burst)]
    first = np.argmax(np.abs(heard) > 0.1 * np.abs(heard).max())
    assert abs(int(first) - 1000) < 0.002 * SAMPLE_RATE


NOTHING = Degradation(*(0 for _ in fields(Degradation)))


def differs(name: str, value: float) -> bool:
    """Whether a setting of 1 changes the sound beyond its level, sign and offset."""
    before = np.random.default_rng(0).standard_normal(SAMPLE_RATE).astype(np.float32)
    config = replace(NOTHING, **{name: value})
    after = augment(before, np.random.default_rng(5), config)
    return abs(float(np.corrcoef(before, after)[0, 1])) < 0.99999


@pytest.mark.parametrize(
    "name",
    ["room", "equaliser", "compressor", "saturation", "clipping", "noise", "hum", "clicks",
     "drums", "telephone", "mp3"],
)  # fmt: skip
def test_each_setting_does_its_own_part(name: str) -> None:
    assert differs(name, 1.0)
    assert not differs(name, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_backgrounds(sounds: Backgrounds, kind: str) -> None:
    rng = np.random.default_rng(1)
    out = background(kind, 2 * SAMPLE_RATE, rng, sounds)
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
    assert 0.6 < np.corrcoef(before, after)[0, 1] < 0.99  # it has lost something


SEGMENTS: tuple[tuple[str, str, str, bool, int], ...] = (
    ("rain", "rain", "drops", False, 0),
    ("doors", "doors", "bang", False, 0),
    ("speech_digits", "speech_digits", "1_jackson_0", True, 0),
    ("speech_digits", "speech_digits", "1_theo_0", True, 0),
    ("drums_one", "drum_hit", "Kick", False, 36),
    ("drums_one", "drum_hit", "Hat", False, 42),
    ("percussion_avl", "drum_hit", "Cowbell", False, 56),
)
LENGTH = SAMPLE_RATE // 2


def write_noise(root: Path) -> None:
    """Half a second of noise for each of SEGMENTS."""
    (root / "noise").mkdir()
    rng = np.random.default_rng(0)
    entries: list[dict[str, Any]] = []
    files: dict[str, list[NDArray[np.float32]]] = {}
    for stem, kind, name, speech, key in SEGMENTS:
        before = files.setdefault(f"noise/{stem}.ogg", [])
        entry = {"file": f"noise/{stem}.ogg", "kind": kind, "name": name, "speech": speech}
        entry |= {"start": LENGTH * len(before), "length": LENGTH}
        entries.append(entry | ({"gm_key": key} if key else {}))
        before.append(rng.uniform(-0.9, 0.9, LENGTH).astype(np.float32))
    for file, parts in files.items():
        soundfile.write(root / file, np.concatenate(parts), SAMPLE_RATE)
    index = {"sample_rate": SAMPLE_RATE, "segments": entries}
    (root / "noise.json").write_text(json.dumps(index))


@pytest.fixture
def sounds(tmp_path: Path) -> Backgrounds:
    write_noise(tmp_path)
    return load_backgrounds(tmp_path)


def test_voices_and_drums_are_held_out(tmp_path: Path) -> None:
    write_noise(tmp_path)
    training, held_out = load_backgrounds(tmp_path), load_backgrounds(tmp_path, held_out=True)
    assert set(training.voices) == {"jackson"}
    assert {segment.name for segment in held_out.segments} == {"1_theo_0", "Cowbell"}
    assert len(training.segments) + len(held_out.segments) == len(SEGMENTS)


@pytest.mark.parametrize(
    "config",
    [Degradation(), Degradation(noise=1.0, drums=1.0, voice=1.0)],
    ids=["usual", "recorded sounds beneath"],
)
@pytest.mark.parametrize("seed", range(6))
def test_augmented_audio_is_finite_bounded_and_as_long(
    sounds: Backgrounds, config: Degradation, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    audio = rng.standard_normal(3 * SAMPLE_RATE).astype(np.float32)
    out = augment(audio, rng, config, Surroundings(sounds=sounds))
    assert out.shape == audio.shape
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert 10 ** (-41 / 20) < np.abs(out).max() <= 1
