import json
from pathlib import Path

import numpy as np
import soundfile

from model.config import INSTRUMENTS, SAMPLE_RATE
from training.music.scored.phrases import load_phrases
from training.music.targets import segment_labels


def test_only_the_instrument_of_a_phrase_is_trained(tmp_path: Path) -> None:
    assert load_phrases(tmp_path, tmp_path) == []
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    decay = np.exp(-time / 0.3)
    sound = sum(np.sin(2 * np.pi * 440 * n * time) * decay**n / n for n in range(1, 6))
    soundfile.write(tmp_path / "one.wav", 0.3 * np.concatenate([0 * time, sound]), SAMPLE_RATE)
    entry = {"file": "one.wav", "class": "flute"}
    index = [entry, entry | {"upstream_split": "validation"}]
    (tmp_path / "phrases.json").write_text(json.dumps(index))
    (clip,) = load_phrases(tmp_path, tmp_path / "cache")
    assert 69 in clip.notes.pitch
    labels = segment_labels(clip.notes, SAMPLE_RATE, frames=170, unknown=clip.unknown)
    assert labels.instrument.max() == 1 + INSTRUMENTS.index("flute")
    assert labels.frame_unknown.all()
    assert labels.onset_unknown.all()
    assert not labels.velocity.any()
