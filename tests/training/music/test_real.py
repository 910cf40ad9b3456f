"""Tests of real recordings as training data, and of the regions excluded from the loss."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from model.config import HOP, INSTRUMENTS, SAMPLE_RATE
from tests.fakes import FakeTranscriber, play
from tests.training.conftest import write_midi
from training.music.aligner import RELEASE_S, Aligned
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, notes_of
from training.music.real import (
    DOUBT,
    EDGE_S,
    HELD,
    UNWRITTEN,
    UNWRITTEN_WITH_ORNAMENTS,
    edges,
    load_labelled,
    load_phrases,
    load_scored,
    uncertain_regions,
)  # fmt: skip
from training.music.synth.augment import Degradation, Surroundings
from training.music.synth.excerpts import recorded_excerpt
from training.music.targets import Targets, segment_labels

PITCHES = (57, 69, 81, 93)
PLAYED = [(PITCHES[i % 4], 1.0 + 0.5 * i, 1.4 + 0.5 * i) for i in range(20)]
LENGTH_S = 14.0
CLEAN = Degradation(*(0 for _ in dataclasses.fields(Degradation)))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of two recordings to train on, one for validation and one without a score."""
    root = tmp_path / "corpus"
    (root / "ornaments").mkdir(parents=True)
    notes = [(onset, offset, pitch, 64) for pitch, onset, offset in PLAYED]
    write_midi(root / "score.mid", [(0, notes)])
    entries: list[dict[str, Any]] = []
    rates = {"piano": 16_000, "tones": SAMPLE_RATE, "validation": 16_000, "unlabelled": 8000}
    for name, rate in rates.items():
        soundfile.write(root / f"{name}.wav", play(PLAYED, LENGTH_S, rate), rate)
        split = "validation" if name == "validation" else "train"
        entries.append({"id": name, "audio": f"{name}.wav", "score": "score.mid", "split": split})
    entries[0] |= {"instruments": "solo piano (a grand)"}
    entries[1] |= {"instruments": "tones"}
    entries[3]["score"] = None
    (root / "ornaments" / "piano.tsv").write_text("score_s\tsign\n2.0\ttrill\n")
    (root / "index.json").write_text(json.dumps(entries))
    monkeypatch.setattr("training.music.real.load", lambda _: FakeTranscriber())
    return root


def test_alignments_are_cached(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    piano, tones = load_scored(corpus, cache, "train")
    assert (piano.name, tones.name) == ("piano", "tones")
    for recording in (piano, tones):
        assert len(recording.audio) == pytest.approx(LENGTH_S * SAMPLE_RATE, abs=2)
        assert recording.notes.pitch.tolist() == [pitch for pitch, _, _ in PLAYED]
        assert recording.notes.onset == pytest.approx([on for _, on, _ in PLAYED], abs=0.02)
        assert not recording.notes.velocity.any()
    assert set(piano.notes.instrument) == {INSTRUMENTS.index("piano")}
    assert set(tones.notes.instrument) == {-1}
    uncertain_onsets = piano.unknown[:, 3] == FRAME_UNKNOWN | ONSET_UNKNOWN
    assert set(piano.unknown[uncertain_onsets, 2]) == {79, 80, 81, 82, 83}  # at the trill
    assert set(tones.unknown[:, 3]) == {FRAME_UNKNOWN}
    monkeypatch.setattr("training.music.real.align_files", None)
    assert [r.name for r in load_scored(corpus, cache, "train")] == ["piano", "tones"]


def test_excluded_recordings_and_other_splits_are_omitted(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.music.real.LEFT_OUT", ("piano",))
    (tones,) = load_scored(corpus, tmp_path / "cache", "train")
    assert tones.name == "tones"
    (validation,) = load_scored(corpus, tmp_path / "cache", "validation")
    assert validation.name == "validation"


def test_excerpt_labels_match_the_audio(corpus: Path, tmp_path: Path) -> None:
    recordings = load_scored(corpus, tmp_path / "cache", "train")
    rng = np.random.default_rng(0)
    pitch_sets = set()
    for _ in range(12):
        rendered = recorded_excerpt(recordings, 5.0, CLEAN, rng, Surroundings())
        assert len(rendered.audio) == pytest.approx(5 * SAMPLE_RATE, abs=2)
        assert rendered.pedal is None
        assert rendered.unknown is not None
        onsets_s = rendered.notes.onset
        inside = onsets_s[(onsets_s > 0.05) & (onsets_s < 4.9)]
        onsets = (inside * SAMPLE_RATE).astype(int)
        # A tone starts within 20 ms of each onset: the audio is louder after it than before.
        after = [float(np.abs(rendered.audio[i + 250 : i + 500]).max()) for i in onsets]
        before = [float(np.abs(rendered.audio[i - 500 : i - 250]).max()) for i in onsets]
        assert np.median(after) > 3 * np.median(before)
        pitch_sets.add(tuple(sorted(set(rendered.notes.pitch.tolist()))))
        targets = segment_labels(rendered.notes, SAMPLE_RATE, 0, 400, unknown=rendered.unknown)
        assert targets.onset.any()
        assert not targets.velocity.any()
        assert targets.frame_unknown.any()
        assert not targets.frame_unknown.all()
    assert len(pitch_sets) > 1  # because excerpts are transposed


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "one.wav", np.zeros(16_000), 16_000)
    (tmp_path / "one.tsv").write_text("onset_s\toffset_s\tmidi_pitch\n0.2\t0.6\t60\n")
    entries = [
        {"id": "guitar", "instruments": "acoustic guitar (pickup)", "label_kind": "exact"},
        {"id": "singer", "instruments": "solo voice (male)", "label_kind": "approximate, 40 ms"},
        {"id": "other", "instruments": "solo voice", "label_kind": "exact", "split": "validation"},
        {"id": "scored", "instruments": "solo piano"},
    ]
    files = {"audio": "one.wav", "labels": ["one.tsv"]}
    (tmp_path / "index.json").write_text(json.dumps([files | entry for entry in entries]))
    return tmp_path


def test_approximate_labels_are_masked_at_their_edges(labelled: Path, tmp_path: Path) -> None:
    train = load_labelled(labelled, tmp_path / "cache", "train")
    assert list(train) == ["plucked", "voice"]
    (guitar,), (singer,) = train.values()
    assert (guitar.name, singer.name) == ("guitar", "singer")
    assert len(guitar.audio) == SAMPLE_RATE
    assert guitar.notes.instrument.tolist() == [INSTRUMENTS.index("plucked")]
    assert not len(guitar.unknown)
    assert len(singer.unknown)
    (validation,) = load_labelled(labelled, tmp_path, "validation")["voice"]
    assert validation.name == "other"


def test_labelled_recordings_of_other_instruments_are_rejected(
    labelled: Path, tmp_path: Path
) -> None:
    entries = json.loads((labelled / "index.json").read_text())
    entries[0]["instruments"] = "solo violin"
    (labelled / "index.json").write_text(json.dumps(entries))
    with pytest.raises(ValueError, match="'guitar' has labels, but its instruments 'solo violin'"):
        load_labelled(labelled, tmp_path / "cache", "train")


def test_the_middle_of_an_approximate_note_is_not_masked() -> None:
    uncertain = edges(notes_of([1.0], [2.0], [60]))

    def bits(time_s: float, pitch: int) -> int:
        matches = (uncertain[:, 0] <= time_s) & (time_s < uncertain[:, 1])
        matches &= uncertain[:, 2] == pitch
        return int(np.bitwise_or.reduce(uncertain[matches, 3].astype(int), initial=0))

    assert bits(1.0, 60) == bits(1 + EDGE_S / 2, 61) == FRAME_UNKNOWN | ONSET_UNKNOWN
    assert bits(2.0, 60) == FRAME_UNKNOWN
    assert bits(1.5, 60) == bits(1.0, 65) == bits(1 - 2 * EDGE_S, 60) == 0


def test_phrases_have_instrument_labels_only(tmp_path: Path) -> None:
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


def aligned(*notes: tuple[float, float, int]) -> Aligned:
    """Return an alignment of notes (onset_s, offset_s, pitch) that were all detected.

    The performance is twice as slow as the score.
    """
    onset, offset, pitch = (np.array(column) for column in zip(*notes, strict=True))
    count = len(notes)
    chords = np.array([0.0, 10.0]), np.array([0.0, 20.0])
    detected = np.full(count, 0.9), np.ones(count, bool)
    return Aligned(onset, offset, pitch, *detected, *chords, np.zeros((0, 3)), 0.05)


def targets_of(alignment: Aligned, ornamented: bool = False) -> Targets[NDArray[np.uint8]]:
    """Return the targets of the first 20 s."""
    rows = uncertain_regions(alignment, np.zeros(0), ornamented)
    frames = 20 * SAMPLE_RATE // HOP
    return segment_labels(alignment.notes, SAMPLE_RATE, -HOP, frames, unknown=rows)


def frame(second: float) -> int:
    return round(second * SAMPLE_RATE / HOP)


def span(mask: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the start and end of a mask in seconds."""
    frames = np.flatnonzero(mask)
    return frames[0] * HOP / SAMPLE_RATE, (frames[-1] + 1) * HOP / SAMPLE_RATE


def test_releases_are_unknown_and_onsets_are_not() -> None:
    targets = targets_of(aligned((2.0, 4.0, 60)))
    assert not targets.onset_unknown.any()
    frame_unknown = targets.frame_unknown
    assert np.flatnonzero(frame_unknown.any(axis=0)).tolist() == [60]
    assert span(frame_unknown[:, 60]) == pytest.approx((2 + 2 * HELD, 4 + RELEASE_S), abs=0.03)


def test_notes_of_low_confidence_are_unknown() -> None:
    notes = aligned((2.0, 4.0, 60), (2.0, 4.0, 64))
    targets = targets_of(replace(notes, confidence=np.array([0.9, DOUBT / 2])))
    assert targets.onset_unknown[frame(2.0), 64]
    assert targets.frame_unknown[frame(2.0) : frame(5.0), 64].all()
    assert not targets.onset_unknown[:, 60].any()
    assert not targets.frame_unknown[frame(2.5), 60]


@pytest.mark.parametrize(
    ("probability", "ornamented", "masked"),
    [
        (UNWRITTEN + 0.01, False, True),
        (UNWRITTEN - 0.01, False, False),
        (UNWRITTEN - 0.01, True, True),
        (UNWRITTEN_WITH_ORNAMENTS - 0.01, True, False),
    ],
)
def test_probable_onsets_missing_from_the_score_are_unknown(
    probability: float, ornamented: bool, masked: bool
) -> None:
    unwritten = np.array([[8.0, 70, probability]])
    targets = targets_of(replace(aligned((2.0, 3.0, 60)), unwritten=unwritten), ornamented)
    assert bool(targets.onset_unknown[frame(8.0), 70]) is masked
    assert bool(targets.frame_unknown[frame(8.1), 70]) is masked


def test_regions_with_few_detected_notes_are_unknown() -> None:
    notes = [(1.0 + 0.5 * i, 1.4 + 0.5 * i, 60 + i) for i in range(30)]
    targets = targets_of(replace(aligned(*notes), detected=np.arange(30) < 15))
    assert targets.onset_unknown[frame(12.0)].all()
    assert targets.frame_unknown[frame(12.0)].all()
    assert not targets.onset_unknown[frame(4.0)].any()
