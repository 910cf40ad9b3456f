import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from model.config import INSTRUMENTS, SAMPLE_RATE
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, notes_of
from training.music.real import EDGE_S, edges, load_labelled, load_phrases
from training.music.targets import segment_labels


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "one.wav", np.zeros(16_000), 16_000)
    (tmp_path / "one.tsv").write_text("onset_s\toffset_s\tmidi_pitch\n0.2\t0.6\t60\n")
    entries = [
        {"id": "guitar", "instruments": "acoustic guitar (pickup)", "label_kind": "exact"},
        {"id": "singer", "instruments": "solo voice (male)", "label_kind": "approximate, 40 ms"},
        {"id": "kept", "instruments": "solo voice", "label_kind": "exact", "split": "validation"},
        {"id": "scored", "instruments": "solo piano"},
    ]
    files = {"audio": "one.wav", "labels": ["one.tsv"]}
    (tmp_path / "index.json").write_text(json.dumps([files | entry for entry in entries]))
    return tmp_path


def test_labels_are_exact_or_masked_at_their_edges(corpus: Path, tmp_path: Path) -> None:
    found = load_labelled(corpus, tmp_path / "cache", "train")
    assert {name: [one.name for one in some] for name, some in found.items()} == {
        "plucked": ["guitar"],
        "voice": ["singer"],
    }
    (guitar,), (singer,) = found.values()
    assert len(guitar.audio) == SAMPLE_RATE
    assert guitar.notes.instrument.tolist() == [INSTRUMENTS.index("plucked")]
    assert not len(guitar.unknown)
    assert len(singer.unknown)
    assert [one.name for one in load_labelled(corpus, tmp_path, "validation")["voice"]] == ["kept"]


def test_the_inside_of_an_approximate_note_is_trained() -> None:
    doubts = edges(notes_of([1.0], [2.0], [60]))

    def bits(at_s: float, pitch: int) -> int:
        here = (doubts[:, 0] <= at_s) & (at_s < doubts[:, 1]) & (doubts[:, 2] == pitch)
        return int(np.bitwise_or.reduce(doubts[here, 3].astype(int), initial=0))

    assert bits(1.0, 60) == bits(1 + EDGE_S / 2, 61) == FRAME_UNKNOWN | ONSET_UNKNOWN
    assert bits(2.0, 60) == FRAME_UNKNOWN
    assert bits(1.5, 60) == bits(1.0, 65) == bits(1 - 2 * EDGE_S, 60) == 0


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
