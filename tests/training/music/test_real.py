"""Recordings with scores as training material."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from model.config import INSTRUMENTS, SAMPLE_RATE
from tests.fakes import FakeTranscriber, play
from tests.training.conftest import write_midi
from training.music.real import load_scored
from training.music.synth.augment import Degradation
from training.music.synth.excerpts import recorded_excerpt
from training.music.targets import segment_labels

PITCHES = (57, 69, 81, 93)
PLAYED = [(PITCHES[i % 4], 1.0 + 0.5 * i, 1.4 + 0.5 * i) for i in range(20)]
LENGTH_S = 14.0
CLEAN = Degradation(*(0 for _ in dataclasses.fields(Degradation)))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two recordings of tones to train on, one held out and one without a score."""
    root = tmp_path / "corpus"
    (root / "ornaments").mkdir(parents=True)
    written = [(begin, end, pitch, 64) for pitch, begin, end in PLAYED]
    write_midi(root / "score.mid", [(0, written)])
    entries: list[dict[str, Any]] = []
    for name, rate in (("one", 16_000), ("two", SAMPLE_RATE), ("kept", 16_000), ("bare", 8000)):
        soundfile.write(root / f"{name}.wav", play(PLAYED, LENGTH_S, rate), rate)
        split = "validation" if name == "kept" else "train"
        entries.append({"id": name, "audio": f"{name}.wav", "score": "score.mid", "split": split})
    entries[0] |= {"instruments": "solo piano (a grand)"}
    entries[1] |= {"instruments": "tones"}
    entries[3]["score"] = None
    (root / "ornaments" / "one.tsv").write_text("score_s\tsign\n2.0\ttrill\n")
    (root / "index.json").write_text(json.dumps(entries))
    monkeypatch.setattr("training.music.real.load", lambda _: FakeTranscriber())
    return root


def test_a_split_is_aligned_once(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    one, two = load_scored(corpus, cache, "train")
    assert (one.name, two.name) == ("one", "two")
    for recording in (one, two):
        assert len(recording.audio) == pytest.approx(LENGTH_S * SAMPLE_RATE, abs=2)
        assert recording.notes.pitch.tolist() == [pitch for pitch, _, _ in PLAYED]
        assert recording.notes.onset == pytest.approx([on for _, on, _ in PLAYED], abs=0.02)
        assert not recording.notes.velocity.any()
    assert set(one.notes.instrument) == {INSTRUMENTS.index("piano")}
    assert set(two.notes.instrument) == {-1}
    assert set(one.unknown[one.unknown[:, 3] == 3, 2]) == {79, 80, 81, 82, 83}  # at the sign
    assert set(two.unknown[:, 3]) == {1}
    monkeypatch.setattr("training.music.real.align_files", None)  # not aligned again
    assert [r.name for r in load_scored(corpus, cache, "train")] == ["one", "two"]


def test_what_is_left_out_is_not_learnt(corpus: Path, tmp_path: Path) -> None:
    (two,) = load_scored(corpus, tmp_path / "cache", "train", ("one",))
    assert two.name == "two"
    (kept,) = load_scored(corpus, tmp_path / "cache", "validation")
    assert kept.name == "kept"


def test_an_excerpt_is_labelled_where_it_sounds(corpus: Path, tmp_path: Path) -> None:
    recordings = load_scored(corpus, tmp_path / "cache", "train")
    rng = np.random.default_rng(0)
    played = set()
    for _ in range(12):
        rendered = recorded_excerpt(recordings, 5.0, CLEAN, rng)
        assert len(rendered.audio) == pytest.approx(5 * SAMPLE_RATE, abs=2)
        assert rendered.pedal is None
        assert rendered.unknown is not None
        begins = rendered.notes.onset
        inside = begins[(begins > 0.05) & (begins < 4.9)]
        at = (inside * SAMPLE_RATE).astype(int)
        # A tone begins within 20 ms of each onset: louder after it than before.
        after = [float(np.abs(rendered.audio[i + 250 : i + 500]).max()) for i in at]
        before = [float(np.abs(rendered.audio[i - 500 : i - 250]).max()) for i in at]
        assert np.median(after) > 3 * np.median(before)
        played.add(tuple(sorted(set(rendered.notes.pitch.tolist()))))
        targets = segment_labels(rendered.notes, SAMPLE_RATE, 0, 400, unknown=rendered.unknown)
        assert targets.onset.any()
        assert not targets.velocity.any()
        assert targets.frame_unknown.any()
        assert not targets.frame_unknown.all()
    assert len(played) > 1  # transposed
