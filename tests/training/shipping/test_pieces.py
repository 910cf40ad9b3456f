"""Real recordings as judges of the note tracker's settings."""

import numpy as np
import pytest

from model.config import HOP, SAMPLE_RATE
from service.notes.tracker_settings import TrackerSettings
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from training.music.metrics import NoteList, note_list
from training.music.notes import notes_of
from training.music.recordings import PCM_SCALE
from training.music.scored.corpus import ScoredRecording
from training.shipping.pieces import Material, Pieces, known_f1, truth_of

FRAME_S = HOP / SAMPLE_RATE
TONES = [(57, 1.0, 1.5), (69, 2.0, 2.5), (81, 3.0, 3.5), (57, 4.0, 4.5)]


def recording(unknown: list[tuple[float, float, float, float]], notes: list) -> ScoredRecording:
    pitch, onset, offset = (np.array(column) for column in zip(*notes, strict=True))
    return ScoredRecording(
        "tones",
        np.rint(play(TONES, 6.0, FAKE_RATE_HZ) * PCM_SCALE).astype(np.int16),
        notes_of(onset, offset, pitch),
        np.array(unknown, float).reshape(-1, 4),
    )


def beginning(played: ScoredRecording) -> Material:
    """The first 3.5 s."""
    audio = played.audio[: int(3.5 * SAMPLE_RATE)].astype(np.float32) / np.float32(PCM_SCALE)
    yield audio, truth_of(played, -(-len(audio) // HOP), FRAME_S)


def found(*notes: tuple[float, int]) -> NoteList:
    return note_list(np.array([(onset, onset + 0.3, pitch, 64) for onset, pitch in notes]))


def test_what_the_score_leaves_open_is_neither_right_nor_wrong() -> None:
    truth = truth_of(recording([(1.9, 2.6, 69, 2), (5.0, 6.0, -1, 3)], TONES), 500, FRAME_S)
    all_but_the_doubtful = found((1.0, 57), (3.0, 81), (4.0, 57))
    assert known_f1(truth, all_but_the_doubtful) == 1.0
    assert known_f1(truth, found((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))) == 1.0
    more = found((1.0, 57), (2.3, 69), (3.0, 81), (4.0, 57), (5.5, 40))
    assert known_f1(truth, more) == 1.0
    assert known_f1(truth, found((1.0, 57), (3.0, 81))) == pytest.approx(2 * 2 / (3 + 2))
    assert known_f1(truth, found((1.0, 57), (1.5, 57), (3.0, 81), (4.0, 57))) == (
        pytest.approx(2 * 3 / (3 + 4))
    )
    frames_alone = truth_of(recording([(1.9, 2.6, 69, 1)], TONES), 500, FRAME_S)
    assert known_f1(frames_alone, all_but_the_doubtful) < 1


def test_ends_count_where_onsets_are_known() -> None:
    truth = truth_of(recording([(1.9, 2.6, 69, 2)], TONES), 500, FRAME_S)
    short = found((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))  # 0.3 s in place of 0.5
    assert known_f1(truth, short) == 1.0
    assert known_f1(truth, short, offsets=True) == 0.0
    rows = [(onset, offset, pitch, 64) for pitch, onset, offset in TONES[2:]]
    assert known_f1(truth, note_list(np.array(rows)), offsets=True) == pytest.approx(4 / 5)


def test_recordings_are_transcribed_and_scored() -> None:
    played = recording([], TONES)
    pieces = Pieces(FakeTranscriber(), beginning(played))  # type: ignore[arg-type]
    assert len(pieces.pieces) == 2  # one for each look-ahead
    assert all(len(truth.notes) == 3 for _, truth in pieces.pieces)
    settings = TrackerSettings(onset_threshold=0.3, frame_on_threshold=0.3)
    assert pieces.objective(settings) > 0.8
    assert abs(np.median(pieces.onset_errors_s(settings))) < 0.015
    elsewhere = recording([], [(pitch, onset + 0.2, offset) for pitch, onset, offset in TONES])
    wrong = Pieces(FakeTranscriber(), beginning(elsewhere))  # type: ignore[arg-type]
    assert wrong.objective(settings) < 0.2
