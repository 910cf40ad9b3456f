"""Scores aligned with what a model hears."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import soundfile

from service.engine.local import LocalComputer
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.training.conftest import write_midi
from tests.training.music.scored.conftest import FRAME_S
from training.music.metrics import NoteList
from training.music.recordings import LabelError
from training.music.scored.aligner import (
    FOUND,
    PLACED,
    Activations,
    Aligned,
    align,
    align_files,
    unwritten,
)
from training.music.scored.coarse import TimeMap, read_time_map


def errors_s(aligned: Aligned, score: NoteList, played: NoteList) -> np.ndarray:
    """How far each note lies from where it is played; both have the score's notes."""
    truth = np.lexsort((played.onset_s, played.pitch))
    found = np.lexsort((aligned.notes.onset_s, aligned.notes.pitch))
    assert (aligned.notes.pitch[found] == played.pitch[truth]).all()
    return np.abs(aligned.notes.onset_s[found] - played.onset_s[truth])


def test_each_note_goes_to_its_own_onset(
    score: NoteList, played: NoteList, activations: Activations
) -> None:
    aligned = align(activations, score)
    assert errors_s(aligned, score, played).max() < FRAME_S
    assert aligned.heard.all()
    assert aligned.confidence.min() > 2 * FOUND
    assert (np.diff(aligned.time_map.audio_s) >= 0).all()
    assert (aligned.notes.offset_s > aligned.notes.onset_s).all()


def test_a_useless_coarse_alignment_is_not_followed(
    score: NoteList, played: NoteList, activations: Activations
) -> None:
    wrong = TimeMap(np.array([0.0, 30.0]), np.array([20.0, 22.0]))
    assert errors_s(align(activations, score, wrong), score, played).max() < FRAME_S


def test_a_note_that_is_not_heard_is_placed_by_its_chord_and_in_doubt(
    score: NoteList, played: NoteList, activations: Activations
) -> None:
    onset = activations.onset.copy()
    deaf = 31  # a note of a chord of two
    at = int(played.onset_s[deaf] / FRAME_S)
    onset[at - 10 : at + 10, played.pitch[deaf]] = 0
    aligned = align(dataclasses.replace(activations, onset=onset), score)
    (missed,) = np.flatnonzero(~aligned.heard)
    assert aligned.notes.pitch[missed] == played.pitch[deaf]
    assert abs(aligned.notes.onset_s[missed] - played.onset_s[deaf]) < 0.06
    assert FOUND / 2 < aligned.confidence[missed] <= PLACED
    assert aligned.confidence[missed] == aligned.confidence.min()


def test_an_unwritten_onset_is_reported(score: NoteList, activations: Activations) -> None:
    onset = activations.onset.copy()
    onset[1000, 100] = 0.8
    aligned = align(activations, score)
    extra = unwritten(aligned, dataclasses.replace(activations, onset=onset))
    assert extra.shape == (1, 3)
    assert extra[0] == pytest.approx([1000 * FRAME_S, 100, 0.8])


def test_files_are_aligned_through_the_service(tmp_path: Path) -> None:
    notes = [(57, 1.0, 1.6), (69, 1.5, 2.0), (81, 2.1, 2.6), (93, 2.5, 3.0), (57, 3.0, 3.6)]
    soundfile.write(tmp_path / "a.wav", play(notes, 5.0, FAKE_RATE_HZ), FAKE_RATE_HZ)
    written = [(0.7 * (a - 1), 0.7 * (b - 1), pitch, 64) for pitch, a, b in notes]
    write_midi(tmp_path / "a.mid", [(0, written)])
    with LocalComputer(FakeTranscriber()) as computer:
        aligned, _ = align_files(tmp_path / "a.wav", tmp_path / "a.mid", None, computer)
    assert aligned.notes.pitch.tolist() == [57, 69, 81, 93, 57]
    assert aligned.notes.onset_s == pytest.approx([1.0, 1.5, 2.1, 2.5, 3.0], abs=0.02)
    with LocalComputer(FakeTranscriber(heads=("frame",))) as computer, pytest.raises(LabelError):
        align_files(tmp_path / "a.wav", tmp_path / "a.mid", None, computer)


@pytest.mark.parametrize("rows", ["", "0\t1\n1\t0.5", "0\tone\n1\t2", "0\t1\n1\tnan"])
def test_a_table_that_is_no_time_map_is_refused(rows: str, tmp_path: Path) -> None:
    path = tmp_path / "map.tsv"
    path.write_text(f"# remark\nscore_s\taudio_s\n{rows}\n")
    with pytest.raises(LabelError, match=r"map\.tsv"):
        read_time_map(path)
