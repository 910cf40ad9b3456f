"""The search for the tracker's settings, its passages, and errors of shipping."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import soundfile

from model.config import SAMPLE_RATE
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from training.evaluation.truth import labelled_f1, labelled_frame_f1, truth_of
from training.music.families import Passage
from training.music.notes import FRAME_UNKNOWN, Notes, joined, notes_of, notes_of_rows
from training.music.real import BOTH
from training.shipping import ship
from training.shipping.evidence import (
    Evidence,
    PredictedPassage,
    predict_passages,
    recorded_passages,
)
from training.shipping.tune import (
    GRID,
    MAX_CORRECTION,
    correction_frames,
    settings_by_evidence,
    tune,
    value_of,
)

TONES = [(57, 1.0, 1.5), (69, 2.0, 2.5), (81, 3.0, 3.5), (57, 4.0, 4.5)]


def passage(unknown: list[tuple[float, float, float, float]], notes: list) -> Passage:
    pitch, onset, offset = (np.array(column) for column in zip(*notes, strict=True))
    audio = play(TONES, 6.0, FAKE_RATE_HZ)
    labelled = notes_of(onset, offset, pitch)
    return Passage("tones", audio, FAKE_RATE_HZ, labelled, np.array(unknown, float).reshape(-1, 4))


def found(*notes: tuple[float, int]) -> Notes:
    return notes_of_rows(np.array([(onset, onset + 0.3, pitch, 64) for onset, pitch in notes]))


def test_what_the_score_leaves_open_is_neither_right_nor_wrong() -> None:
    truth = truth_of(passage([(1.9, 2.6, 69, 2), (5.0, 6.0, -1, 3)], TONES))
    all_but_the_doubtful = found((1.0, 57), (3.0, 81), (4.0, 57))
    assert labelled_f1(truth, all_but_the_doubtful) == 1.0
    assert labelled_f1(truth, found((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))) == 1.0
    more = found((1.0, 57), (2.3, 69), (3.0, 81), (4.0, 57), (5.5, 40))
    assert labelled_f1(truth, more) == 1.0
    assert labelled_f1(truth, found((1.0, 57), (3.0, 81))) == pytest.approx(2 * 2 / (3 + 2))
    assert labelled_f1(truth, found((1.0, 57), (1.5, 57), (3.0, 81), (4.0, 57))) == (
        pytest.approx(2 * 3 / (3 + 4))
    )
    frames_alone = truth_of(passage([(1.9, 2.6, 69, 1)], TONES))
    assert labelled_f1(frames_alone, all_but_the_doubtful) < 1


def test_ends_count_where_onsets_are_known() -> None:
    truth = truth_of(passage([(1.9, 2.6, 69, 2)], TONES))
    short = found((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))  # 0.3 s in place of 0.5
    assert labelled_f1(truth, short) == 1.0
    assert labelled_f1(truth, short, offsets=True) == 0.0
    rows = [(onset, offset, pitch, 64) for pitch, onset, offset in TONES[2:]]
    assert labelled_f1(truth, notes_of_rows(np.array(rows)), offsets=True) == pytest.approx(4 / 5)


def test_approximate_labels_are_taken_as_they_are() -> None:
    everywhere = truth_of(passage([(0.0, 6.0, -1, BOTH)], TONES))
    assert labelled_f1(everywhere, found((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))) == 1.0
    assert labelled_frame_f1(everywhere, found((5.0, 40))) == 0.0
    assert not everywhere.exact


def test_frames_count_where_they_are_known() -> None:
    late = truth_of(passage([(1.3, 6.0, -1, FRAME_UNKNOWN)], TONES))
    assert labelled_frame_f1(late, found((1.0, 57), (2.0, 40))) == pytest.approx(1.0, abs=0.04)
    assert labelled_frame_f1(truth_of(passage([], TONES)), found((1.0, 57))) < 0.5


def test_passages_are_transcribed_and_scored() -> None:
    right = passage([], TONES)
    wrong = passage([], [(pitch, onset + 0.2, offset) for pitch, onset, offset in TONES])
    silent = Passage("no notes", right.audio, FAKE_RATE_HZ, joined([]), right.unknown)
    passages = {"tones": [right], "late": [wrong], "no notes": [silent]}
    pieces = predict_passages(cast(TranscriptionModel, FakeTranscriber()), passages)
    settings = TrackerSettings(onset_threshold=0.3, frame_on_threshold=0.3)
    assert set(pieces) == {"tones", "late"}
    assert pieces["tones"][0].score(settings) > 0.8
    assert pieces["late"][0].score(settings) < 0.6

    (piece,) = pieces["tones"]

    def late(frames: float) -> list[PredictedPassage]:
        notes = piece.detected_notes(settings).shifted(-frames * piece.truth.frame_s)
        return [replace(piece, truth=replace(piece.truth, notes=notes))]

    assert correction_frames({"tones": late(0.3), "others": late(-0.1)}, settings) == -0.1
    assert correction_frames({"tones": late(3)}, settings) == -MAX_CORRECTION


def test_the_top_is_found_though_settings_lean_on_each_other() -> None:
    tried = []

    def height(s: TrackerSettings, knob: str) -> float:
        tried.append(s)
        if knob == "end_biases.brass":  # what else it depends on does not matter here
            return -abs(value_of(s, knob) - 1.5)
        return -(
            abs(s.onset_threshold - 0.15)
            + abs(s.frame_on_threshold - s.onset_threshold - 0.3)
            + abs(value_of(s, "end_biases.brass") - 1.5)
            + abs(s.min_note_frames - 3) / 20
        )

    found = tune(height, TrackerSettings(), GRID)
    assert found.onset_threshold == pytest.approx(0.15)
    assert found.frame_on_threshold == pytest.approx(0.45)
    assert found.min_note_frames == 3
    assert value_of(found, "end_biases.brass") == 1.5
    assert len(tried) < sum(map(len, GRID.values())) * 3


def test_shipping_says_what_it_lacks_and_writes_nothing(
    tiny_weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    arguments = [str(run), "--name", "mine", "--synth", str(tmp_path / "none"), "--out", str(out)]
    assert ship.main(arguments) == 1
    assert "no weights" in capsys.readouterr().err
    run.mkdir()
    for suffix in (".safetensors", ".json"):
        source = tiny_weights.with_suffix(suffix)
        (run / "best").with_suffix(suffix).write_bytes(source.read_bytes())
    assert ship.main(arguments) == 1
    assert "bank_index.json" in capsys.readouterr().err
    assert not out.exists()


class Judged:
    """Evidence whose scores are linear in the piano's end bias, with a slope for each group."""

    families = ("piano",)
    halves: tuple[dict[str, None], ...] = ({"piano": None}, {"piano": None})

    def __init__(self, *slopes: float) -> None:
        self.slopes = slopes

    def scores(self, settings: TrackerSettings, _: str) -> list[float]:
        bias = value_of(settings, "end_biases.piano")
        return [0.5 + slope * bias / 100 for slope in self.slopes]


@pytest.mark.parametrize(
    ("slopes", "moves"),
    [
        ((0.0, 1.0, 1.0), True),  # both halves of the recordings gain, the rendered lose nothing
        ((-0.1, 1.0, 1.0), True),
        ((1.0, 0.0, 0.0), True),
        ((0.0, 2.0, -1.0), False),  # only one half gains
        ((-1.0, 1.5, 1.5), False),  # the rendered passages disagree
        ((0.05, 0.05, 0.05), False),  # too little to count
    ],
)
def test_settings_change_only_if_all_groups_agree(slopes: tuple[float, ...], moves: bool) -> None:
    evidence = cast(Evidence, Judged(*slopes))
    chosen = settings_by_evidence(evidence, TrackerSettings())
    assert (value_of(chosen, "end_biases.piano") > 1) == moves
    assert chosen.onset_thresholds == {}


def test_recordings_are_read_by_set_and_halved(tmp_path: Path) -> None:
    for name in ("maps", "omaps"):
        for number in range(2):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            soundfile.write(folder / f"{number}.wav", play(TONES, 6.0, FAKE_RATE_HZ), FAKE_RATE_HZ)
            (folder / f"{number}.tsv").write_text("1.0\t1.5\t57\t64\n4.0\t4.5\t57\t64\n")
    first, second = recorded_passages(tmp_path)
    assert [p.name for p in first["piano"]] == ["0", "0"]
    assert [p.name for p in second["piano"]] == ["1", "1"]
    maps, omaps = first["piano"]
    assert maps.notes.onset[0] == pytest.approx(1.01)
    assert omaps.notes.onset[0] == pytest.approx(1.0)
    assert maps.sample_rate == omaps.sample_rate == SAMPLE_RATE
    with pytest.raises(ValueError, match="no sub-folder"):
        recorded_passages(tmp_path / "maps")
