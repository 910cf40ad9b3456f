import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.music.synth.acoustics.augment import Surroundings, augment
from training.music.synth.acoustics.backgrounds import Backgrounds, load_backgrounds
from training.music.synth.config import RecordingConfig

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


def load(root: Path, held_out: bool = False) -> Backgrounds:
    loaded = load_backgrounds(root, SAMPLE_RATE, held_out)
    assert loaded is not None
    return loaded


@pytest.fixture
def sounds(tmp_path: Path) -> Backgrounds:
    write_noise(tmp_path)
    return load(tmp_path)


def test_voices_and_drums_are_held_out(tmp_path: Path) -> None:
    write_noise(tmp_path)
    training, held_out = load(tmp_path), load(tmp_path, held_out=True)
    assert set(training.voices) == {"jackson"}
    assert {segment.name for segment in held_out.segments} == {"1_theo_0", "Cowbell"}
    assert len(training.segments) + len(held_out.segments) == len(SEGMENTS)


@pytest.mark.parametrize("kind", ["noise", "talk", "drums"])
def test_sounds_fill_an_excerpt(sounds: Backgrounds, kind: str) -> None:
    rng = np.random.default_rng(1)
    length = 20 * SAMPLE_RATE
    for _ in range(4):
        out = getattr(sounds, kind)(length, rng)
        assert out.shape == (length,)
        assert out.dtype == np.float32
        seconds = np.abs(out).reshape(20, SAMPLE_RATE).max(axis=1)
        assert (seconds > 0).mean() > 0.2
        assert seconds.max() < 8


def test_recorded_sounds_lie_beneath_music(sounds: Backgrounds) -> None:
    config = RecordingConfig(noise=1.0, drums=1.0, voice=1.0, recorded=1.0)
    audio = np.sin(np.arange(4 * SAMPLE_RATE) * 0.3).astype(np.float32)
    out = augment(audio, SAMPLE_RATE, np.random.default_rng(3), config, Surroundings(sounds=sounds))
    assert out.shape == audio.shape
    assert np.isfinite(out).all()
    assert 0 < np.abs(out).max() <= 1
