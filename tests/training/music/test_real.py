"""Real recordings as training data: what is read, what is left out of the loss, and what is not."""

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
        rendered = recorded_excerpt(recordings, 5.0, CLEAN, rng, Surroundings())
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


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
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


def test_labels_are_exact_or_masked_at_their_edges(labelled: Path, tmp_path: Path) -> None:
    found = load_labelled(labelled, tmp_path / "cache", "train")
    assert {name: [one.name for one in some] for name, some in found.items()} == {
        "plucked": ["guitar"],
        "voice": ["singer"],
    }
    (guitar,), (singer,) = found.values()
    assert len(guitar.audio) == SAMPLE_RATE
    assert guitar.notes.instrument.tolist() == [INSTRUMENTS.index("plucked")]
    assert not len(guitar.unknown)
    assert len(singer.unknown)
    assert [one.name for one in load_labelled(labelled, tmp_path, "validation")["voice"]] == [
        "kept"
    ]


def test_the_inside_of_an_approximate_note_is_trained() -> None:
    uncertain = edges(notes_of([1.0], [2.0], [60]))

    def bits(at_s: float, pitch: int) -> int:
        here = (uncertain[:, 0] <= at_s) & (at_s < uncertain[:, 1]) & (uncertain[:, 2] == pitch)
        return int(np.bitwise_or.reduce(uncertain[here, 3].astype(int), initial=0))

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


def evidence(*notes: tuple[float, float, int]) -> Aligned:
    """Return notes (onset, offset, pitch), all detected; the score has half of the tempo."""
    onset, offset, pitch = (np.array(column) for column in zip(*notes, strict=True))
    count = len(notes)
    chords = np.array([0.0, 10.0]), np.array([0.0, 20.0])
    heard = np.full(count, 0.9), np.ones(count, bool)
    return Aligned(onset, offset, pitch, *heard, *chords, np.zeros((0, 3)), 0.05)


def targets(made: Aligned, ornamented: bool = False) -> Targets[NDArray[np.uint8]]:
    """Return the targets of 20 s."""
    rows = uncertain_regions(made, np.zeros(0), ornamented)
    return segment_labels(made.notes, SAMPLE_RATE, -HOP, 20 * SAMPLE_RATE // HOP, unknown=rows)


def frame(second: float) -> int:
    return round(second * SAMPLE_RATE / HOP)


def span(mask: NDArray[np.uint8]) -> tuple[float, float]:
    """First and last second of a mask."""
    frames = np.flatnonzero(mask)
    return frames[0] * HOP / SAMPLE_RATE, (frames[-1] + 1) * HOP / SAMPLE_RATE


def test_a_release_is_unknown_and_the_strike_is_not() -> None:
    made = targets(evidence((2.0, 4.0, 60)))
    assert not made.onset_unknown.any()
    assert np.flatnonzero(made.frame_unknown.any(axis=0)).tolist() == [60]
    assert span(made.frame_unknown[:, 60]) == pytest.approx((2 + 2 * HELD, 4 + RELEASE_S), abs=0.03)


def test_a_note_in_doubt_is_neither_taught_as_played_nor_as_silence() -> None:
    both = evidence((2.0, 4.0, 60), (2.0, 4.0, 64))
    made = targets(replace(both, confidence=np.array([0.9, DOUBT / 2])))
    assert made.onset_unknown[frame(2.0), 64]
    assert made.frame_unknown[frame(2.0) : frame(5.0), 64].all()
    assert not made.onset_unknown[:, 60].any()
    assert not made.frame_unknown[frame(2.5), 60]


@pytest.mark.parametrize(
    ("probability", "ornamented", "masked"),
    [
        (UNWRITTEN + 0.01, False, True),
        (UNWRITTEN - 0.01, False, False),
        (UNWRITTEN - 0.01, True, True),
        (UNWRITTEN_WITH_ORNAMENTS - 0.01, True, False),
    ],
)
def test_a_loud_onset_that_is_not_written_may_be_played(
    probability: float, ornamented: bool, masked: bool
) -> None:
    heard = replace(evidence((2.0, 3.0, 60)), unwritten=np.array([[8.0, 70, probability]]))
    made = targets(heard, ornamented=ornamented)
    assert bool(made.onset_unknown[frame(8.0), 70]) is masked
    assert bool(made.frame_unknown[frame(8.1), 70]) is masked


def test_where_few_notes_are_heard_nothing_is_taught() -> None:
    notes = [(1.0 + 0.5 * i, 1.4 + 0.5 * i, 60 + i) for i in range(30)]
    heard = np.arange(30) < 15
    made = targets(replace(evidence(*notes), detected=heard))
    assert made.onset_unknown[frame(12.0)].all()
    assert made.frame_unknown[frame(12.0)].all()
    assert not made.onset_unknown[frame(4.0)].any()
