"""Real recordings as judges of the note tracker's settings."""

from __future__ import annotations

import mir_eval
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import HOP, SAMPLE_RATE
from service.notes.tracker_settings import TrackerSettings
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from training.music.metrics import NoteList, note_list
from training.music.scored.corpus import PCM_SCALE, ScoredRecording
from training.music.synth.scores import Notes
from training.shipping.recorded_pieces import (
    RecordedPieces,
    Truth,
    known_onset_f1,
    matches,
    truth,
)

FRAME_S = HOP / SAMPLE_RATE
TONES = [(57, 1.0, 1.5), (69, 2.0, 2.5), (81, 3.0, 3.5), (57, 4.0, 4.5)]


def recording(unknown: list[tuple[float, float, float, float]], notes: list) -> ScoredRecording:
    pitch, onset, offset = (np.array(column) for column in zip(*notes, strict=True))
    nothing = np.zeros(len(notes))
    return ScoredRecording(
        "tones",
        np.rint(play(TONES, 6.0, FAKE_RATE_HZ) * PCM_SCALE).astype(np.int16),
        Notes(
            onset,
            offset,
            pitch.astype(np.int16),
            nothing.astype(np.float32),
            nothing.astype(np.int16),
        ),
        np.array(unknown, float).reshape(-1, 4),
    )


def found(*notes: tuple[float, int]) -> NoteList:
    return note_list(np.array([(onset, onset + 0.3, pitch, 64) for onset, pitch in notes]))


def test_what_the_score_leaves_open_is_neither_right_nor_wrong() -> None:
    told = truth(recording([(1.9, 2.6, 69, 2), (5.0, 6.0, -1, 3)], TONES), 500, FRAME_S)
    all_but_the_doubtful = found((1.0, 57), (3.0, 81), (4.0, 57))
    assert known_onset_f1(told, all_but_the_doubtful) == 1.0
    assert known_onset_f1(told, found((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))) == 1.0
    more = found((1.0, 57), (2.3, 69), (3.0, 81), (4.0, 57), (5.5, 40))
    assert known_onset_f1(told, more) == 1.0
    assert known_onset_f1(told, found((1.0, 57), (3.0, 81))) == pytest.approx(2 * 2 / (3 + 2))
    assert known_onset_f1(told, found((1.0, 57), (1.5, 57), (3.0, 81), (4.0, 57))) == (
        pytest.approx(2 * 3 / (3 + 4))
    )
    frames_alone = truth(recording([(1.9, 2.6, 69, 1)], TONES), 500, FRAME_S)
    assert known_onset_f1(frames_alone, all_but_the_doubtful) < 1


# Steps of 8 ms, none of whose multiples is the tolerance.
onsets = st.lists(
    st.tuples(st.integers(0, 125).map(lambda step: 0.008 * step), st.integers(60, 62)), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(onsets, onsets)
def test_as_many_notes_match_as_can(
    written: list[tuple[float, int]], heard: list[tuple[float, int]]
) -> None:
    onset_s, pitch = (np.array([note[i] for note in written]) for i in (0, 1))
    told = Truth(onset_s, pitch.astype(np.int16), np.zeros((100, 128), bool), FRAME_S)
    notes = found(*heard)
    pairs = matches(told, notes)
    for side in pairs:
        assert len(set(side.tolist())) == len(side)
    assert (notes.pitch[pairs[1]] == pitch[pairs[0]]).all()
    assert (np.abs(notes.onset_s[pairs[1]] - onset_s[pairs[0]]) <= 0.05).all()
    graph = {
        i: [j for j, o in enumerate(written) if o[1] == p and abs(o[0] - t) <= 0.05]
        for i, (t, p) in enumerate(zip(notes.onset_s, notes.pitch, strict=True))
    }
    most = mir_eval.util._bipartite_match({i: js for i, js in graph.items() if js})
    assert len(pairs[0]) == len(most)


def test_recordings_are_transcribed_and_scored() -> None:
    played = recording([], TONES)
    pieces = RecordedPieces(FakeTranscriber(), [played], seconds=3.5)  # type: ignore[arg-type]
    assert len(pieces.pieces) == 2  # one for each look-ahead
    assert all(len(told.onset_s) == 3 for _, told in pieces.pieces)
    settings = TrackerSettings(onset_threshold=0.3, frame_on_threshold=0.3)
    assert pieces.objective(settings) > 0.8
    assert abs(np.median(pieces.onset_errors_s(settings))) < 0.015
    elsewhere = recording([], [(pitch, onset + 0.2, offset) for pitch, onset, offset in TONES])
    wrong = RecordedPieces(FakeTranscriber(), [elsewhere], seconds=3.5)  # type: ignore[arg-type]
    assert wrong.objective(settings) < 0.2
