"""Tests of the user's recordings: fitting labels, rejected recordings and the split."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from model.config import SAMPLE_RATE
from service.engine.local import LocalEngine
from tests.fakes import FAKE_PITCHES, FakeTranscriber, play
from tests.training.conftest import write_midi
from training.fine_tune.collection import (
    UserRecording,
    at_concert_pitch,
    read_folder,
    split,
    tuning_cents,
)
from training.music.notes import notes_of
from training.music.real import RealRecording

RNG = np.random.default_rng(3)
GAPS = RNG.uniform(0.25, 0.7, 24)
ONSETS = 0.5 + np.cumsum(GAPS)
NOTES = [
    (FAKE_PITCHES[int(pitch)], float(onset), float(onset) + 0.2)
    for pitch, onset in zip(RNG.integers(0, 4, len(ONSETS)), ONSETS, strict=True)
]
LENGTH_S = float(ONSETS[-1]) + 1
RATE_HZ = 22_050


def write_labels(path: Path, notes: list[tuple[int, float, float]], shift_s: float = 0.0) -> None:
    lines = [f"{on + shift_s}\t{off + shift_s}\t{pitch}" for pitch, on, off in notes]
    path.write_text("\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    audio = play(NOTES, LENGTH_S, RATE_HZ)
    for name in ("hand", "late", "score", "wrong"):
        soundfile.write(tmp_path / f"{name}.flac", audio, RATE_HZ)
    soundfile.write(tmp_path / "fits.mp3", audio, RATE_HZ)
    soundfile.write(tmp_path / "clipped.wav", np.clip(100 * audio, -1, 1), RATE_HZ)
    steady = np.sin(2 * np.pi * 440 * np.arange(len(audio)) / RATE_HZ)
    soundfile.write(tmp_path / "steady.wav", steady, RATE_HZ)
    soundfile.write(tmp_path / "silent.wav", 0 * audio, RATE_HZ)
    soundfile.write(tmp_path / "short.wav", audio[: 2 * RATE_HZ], RATE_HZ)
    soundfile.write(tmp_path / "bare.wav", audio, RATE_HZ)
    (tmp_path / "broken.m4a").write_bytes(b"no audio")
    for name in ("fits", "clipped", "silent", "short", "steady", "broken"):
        write_labels(tmp_path / f"{name}.tsv", NOTES)
    errors_s = np.random.default_rng(4).uniform(-0.035, 0.035, len(NOTES))
    hand = [(p, on + error, off) for (p, on, off), error in zip(NOTES, errors_s, strict=True)]
    write_labels(tmp_path / "hand.tsv", hand)
    write_labels(tmp_path / "late.csv", NOTES, shift_s=0.3)
    # The score has an even rhythm and is 1.5 times faster.
    even = [(0.3 * i, 0.3 * i + 0.2, pitch, 64) for i, (pitch, _, _) in enumerate(NOTES)]
    write_midi(tmp_path / "score.mid", [(40, even)])
    other = np.random.default_rng(9).uniform(0, LENGTH_S, 40)
    write_labels(tmp_path / "wrong.tsv", [(60, float(t), float(t) + 0.1) for t in sorted(other)])
    return tmp_path


def test_performance_labels_and_scores_are_distinguished(folder: Path) -> None:
    with LocalEngine(FakeTranscriber()) as engine:
        collection = read_folder(folder, engine)
    fits, hand, late, score = collection.recordings
    assert [own.kind for own in (fits, late, score)] == ["performance", "performance", "score"]
    onsets_s = np.array([onset for _, onset, _ in NOTES])
    for own in (fits, late, score):
        assert own.recording.notes.onset == pytest.approx(onsets_s, abs=0.03)
        assert len(own.recording.audio) == pytest.approx(LENGTH_S * SAMPLE_RATE, abs=2000)
        assert own.support > 0.9
        assert not own.recording.notes.velocity.any()  # The labels have no velocities.
    assert fits.shift_s == hand.shift_s == 0
    assert fits.training_copy is not hand.training_copy
    assert np.array_equal(fits.training_copy.notes.onset, fits.recording.notes.onset)
    # Manual labels are inexact: training uses detected onsets, and tests use the labels.
    assert hand.kind == "performance"
    assert np.abs(hand.recording.notes.onset - onsets_s).max() > 0.03
    assert hand.training_copy.notes.onset == pytest.approx(onsets_s, abs=0.02)
    assert late.shift_s == pytest.approx(-0.3, abs=0.02)
    assert len(score.recording.unknown)
    assert len(collection.unlabelled) == 1
    reasons = {
        "broken": "",
        "clipped": "clipped",
        "short": "shorter than 5 s",
        "silent": "silent",
        "steady": "the labels do not fit",  # instead of "clipped"
        "wrong": "the labels do not fit",
    }
    assert sorted(collection.left_out) == sorted(reasons)
    table = collection.table()
    for name, reason in reasons.items():
        assert reason in collection.left_out[name]
        assert f"left out: {collection.left_out[name]}" in table
    assert "labels shifted by -" in table


def test_recordings_that_cannot_be_opened_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_path = Path.open

    def open_unless_forbidden(path: Path, *args: Any, **options: Any) -> Any:
        if path.name in ("fits.mp3", "bare.wav"):
            raise PermissionError(f"no permission: {path.name}")
        return open_path(path, *args, **options)

    monkeypatch.setattr(Path, "open", open_unless_forbidden)
    with LocalEngine(FakeTranscriber()) as engine:
        collection = read_folder(folder, engine)
    assert collection.left_out["fits"] == "no permission: fits.mp3"
    assert collection.left_out["bare.wav"] == "no permission: bare.wav"
    assert len(collection.recordings) == 3


def own_recording(name: str, seconds: float, pitch: float = 69) -> UserRecording:
    audio = np.rint(32767 * play([(pitch, 0, seconds)], seconds, SAMPLE_RATE)).astype(np.int16)
    onset = np.arange(0.5, seconds - 0.5)
    notes = notes_of(onset, onset + 0.8, np.full(len(onset), round(pitch)))
    recording = RealRecording(name, audio, notes, np.zeros((0, 4)))
    return UserRecording(recording, recording, "performance", 1.0, 0.0, tuning_cents(audio))


def names(recordings: list[UserRecording]) -> list[str]:
    return [own.recording.name for own in recordings]


def test_many_recordings_are_split_by_recording() -> None:
    recordings = [own_recording(f"{i:02}", 6.0) for i in range(11)]
    parts = split(recordings, seed=1)
    train, validation, test, _ = parts
    assert [len(train), len(validation), len(test)] == [7, 2, 2]
    assert sorted(names([*train, *validation, *test])) == names(recordings)
    assert split(recordings, seed=1) == parts
    assert split(recordings, seed=2) != parts


def test_the_ends_of_a_few_recordings_are_used_for_validation() -> None:
    recordings = [own_recording(str(i), 8.0) for i in range(6)]
    train, validation, test, _ = split(recordings, seed=1)
    assert len(test) == 1
    assert names(train) == names(validation)
    assert set(names([*train, *test])) == set("012345")
    for first, second in zip(train, validation, strict=True):
        assert len(first.recording.audio) == 3 * len(second.recording.audio)
        assert len(first.training_copy.audio) == len(first.recording.audio)


def test_one_recording_is_split_by_time() -> None:
    parts = split([own_recording("one", 20.0)], seed=1)
    assert parts.description.startswith("by time")
    lengths = [len(part[0].recording.audio) / SAMPLE_RATE for part in parts[:3]]
    assert lengths == pytest.approx([12, 4, 4], abs=0.01)
    # The note at 12.5 s is 0.5 s after the start of the second part.
    assert 0.5 in np.round(parts.validation[0].recording.notes.onset, 2)
    with pytest.raises(ValueError, match="no recording"):
        split([], seed=1)


def with_silence(own: UserRecording, seconds: float) -> UserRecording:
    silence = np.zeros(int(seconds * SAMPLE_RATE), np.int16)
    longer = replace(own.recording, audio=np.concatenate([own.recording.audio, silence]))
    return replace(own, recording=longer, training_copy=longer)


def test_every_part_contains_notes() -> None:
    parts = split([with_silence(own_recording("one", 20.0), 60)], seed=1)
    lengths = [len(part[0].recording.audio) / SAMPLE_RATE for part in parts[:3]]
    assert lengths == pytest.approx([12.2, 4.1, 4.1], abs=0.1)
    assert all(len(part[0].recording.notes) for part in parts[:3])
    own = with_silence(own_recording("short", 2.5), 10)
    with pytest.raises(ValueError, match="the validation part contains no notes: add"):
        split([own], seed=1)


def test_recordings_in_another_tuning_are_retuned() -> None:
    sharp = own_recording("sharp", 8.0, pitch=69.3)
    assert sharp.cents == pytest.approx(30, abs=2)
    retuned = at_concert_pitch(sharp.recording, sharp.cents)
    assert tuning_cents(retuned.audio) == pytest.approx(0, abs=2)
    assert len(retuned.audio) == pytest.approx(8 * 2 ** (0.3 / 12) * SAMPLE_RATE, rel=1e-3)
    assert retuned.notes.onset[-1] == pytest.approx(
        7.5 * 2 ** (0.3 / 12) - 2 ** (0.3 / 12), rel=0.1
    )
    # Resampling overshoots full scale at the edges of a square wave.
    square = np.where(sharp.recording.audio > 0, 32_767, 0).astype(np.int16)
    loud = at_concert_pitch(replace(sharp.recording, audio=square), sharp.cents).audio
    assert loud.max() == 32_767
    assert loud.min() > -10_000  # an overflow would be near -32 768
    near = own_recording("near", 8.0, pitch=69.1)
    assert at_concert_pitch(near.recording, near.cents) is near.recording
