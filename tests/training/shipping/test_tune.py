"""Tests of the search for tracker settings, of its passages, and of shipping errors."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import soundfile
import torch

from model.storage import load, save_weights
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from tests.commands import run
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.networks import TINY
from training.evaluation.truth import labelled_f1, labelled_frame_f1, truth_of
from training.music.families import Passage
from training.music.notes import (
    FRAME_S,
    FRAME_UNKNOWN,
    ONSET_UNKNOWN,
    Notes,
    joined,
    notes_of,
    notes_of_rows,
)
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
    return Passage("tones", audio, labelled, np.array(unknown, float).reshape(-1, 4))


def detected(*notes: tuple[float, int]) -> Notes:
    """Return notes (onset_s, pitch) of 0.3 s."""
    return notes_of_rows(np.array([(onset, onset + 0.3, pitch, 64) for onset, pitch in notes]))


def test_uncertain_regions_do_not_affect_the_score() -> None:
    truth = truth_of(passage([(1.9, 2.6, 69, ONSET_UNKNOWN), (5.0, 6.0, -1, BOTH)], TONES))
    certain_notes = (1.0, 57), (3.0, 81), (4.0, 57)
    for uncertain_notes in ([], [(2.0, 69)], [(2.3, 69), (5.5, 40)]):
        assert labelled_f1(truth, detected(*certain_notes, *uncertain_notes)) == 1.0
    assert labelled_f1(truth, detected(*certain_notes[:2])) == pytest.approx(2 * 2 / (3 + 2))
    extra = detected((1.5, 57), *certain_notes)
    assert labelled_f1(truth, extra) == pytest.approx(2 * 3 / (3 + 4))
    uncertain_frames = truth_of(passage([(1.9, 2.6, 69, FRAME_UNKNOWN)], TONES))
    assert labelled_f1(uncertain_frames, detected(*certain_notes)) < 1


def test_offsets_count_where_onsets_are_labelled() -> None:
    truth = truth_of(passage([(1.9, 2.6, 69, ONSET_UNKNOWN)], TONES))
    short = detected((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))  # 0.3 s instead of 0.5 s
    assert labelled_f1(truth, short) == 1.0
    assert labelled_f1(truth, short, offsets=True) == 0.0
    rows = [(onset, offset, pitch, 64) for pitch, onset, offset in TONES[2:]]
    assert labelled_f1(truth, notes_of_rows(np.array(rows)), offsets=True) == pytest.approx(4 / 5)


def test_entirely_uncertain_labels_are_scored_as_they_are() -> None:
    truth = truth_of(passage([(0.0, 6.0, -1, BOTH)], TONES))
    assert labelled_f1(truth, detected((1.0, 57), (2.0, 69), (3.0, 81), (4.0, 57))) == 1.0
    assert labelled_frame_f1(truth, detected((5.0, 40))) == 0.0
    assert not truth.exact


def test_only_labelled_frames_count() -> None:
    truth = truth_of(passage([(1.3, 6.0, -1, FRAME_UNKNOWN)], TONES))
    assert labelled_frame_f1(truth, detected((1.0, 57), (2.0, 40))) == pytest.approx(1.0, abs=0.04)
    assert labelled_frame_f1(truth_of(passage([], TONES)), detected((1.0, 57))) < 0.5


def test_passages_are_transcribed_and_scored() -> None:
    correct = passage([], TONES)
    late = passage([], [(pitch, onset + 0.2, offset) for pitch, onset, offset in TONES])
    no_notes = Passage("no notes", correct.audio, joined([]), correct.unknown)
    passages = {"tones": [correct], "late": [late], "no notes": [no_notes]}
    predicted = predict_passages(cast(TranscriptionModel, FakeTranscriber()), passages)
    settings = TrackerSettings(onset_threshold=0.3, frame_on_threshold=0.3)
    assert set(predicted) == {"tones", "late"}
    (tones,) = predicted["tones"]
    assert tones.score(settings) > 0.8
    assert predicted["late"][0].score(settings) < 0.6

    def detected_late_by(frames: float) -> list[PredictedPassage]:
        notes = tones.detected_notes(settings).shifted(-frames * FRAME_S)
        return [replace(tones, truth=replace(tones.truth, notes=notes))]

    delays = {"tones": detected_late_by(0.3), "others": detected_late_by(-0.1)}
    assert correction_frames(delays, settings) == -0.1
    assert correction_frames({"tones": detected_late_by(3)}, settings) == -MAX_CORRECTION


def test_tuning_finds_the_maximum_of_dependent_settings() -> None:
    evaluated = []

    def objective(s: TrackerSettings, name: str) -> float:
        evaluated.append(s)
        if name == "end_biases.brass":
            return -abs(value_of(s, name) - 1.5)
        return -(
            abs(s.onset_threshold - 0.15)
            + abs(s.frame_on_threshold - s.onset_threshold - 0.3)
            + abs(value_of(s, "end_biases.brass") - 1.5)
            + abs(s.min_note_frames - 3) / 20
        )

    best = tune(objective, TrackerSettings(), GRID)
    assert best.onset_threshold == pytest.approx(0.15)
    assert best.frame_on_threshold == pytest.approx(0.45)
    assert best.min_note_frames == 3
    assert value_of(best, "end_biases.brass") == 1.5
    assert len(evaluated) < sum(map(len, GRID.values())) * 3


def test_shipping_without_inputs_writes_nothing(tiny_weights: Path, tmp_path: Path) -> None:
    trained, out = tmp_path / "run", tmp_path / "out"
    arguments = trained, "--name", "mine", "--synth", tmp_path / "none", "--out", out
    status, _, error = run(ship.main, *arguments)
    assert status == 1
    assert f"python -m training.shipping.ship: no weights '{trained}/best.safetensors'" in error
    trained.mkdir()
    for suffix in (".safetensors", ".json"):
        source = tiny_weights.with_suffix(suffix)
        (trained / "best").with_suffix(suffix).write_bytes(source.read_bytes())
    status, _, error = run(ship.main, *arguments)
    assert status == 1
    assert "bank_index.json" in error
    assert not out.exists()
    assert run(ship.main, trained).status == 2  # A default name could replace shipped weights.


def test_weights_of_several_runs_are_averaged(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    networks = [TranscriptionModel(TINY) for _ in range(2)]
    networks.append(TranscriptionModel(replace(TINY, heads=("frame",))))
    for file, network in zip(files, networks, strict=True):
        card = {"config": network.config.to_json(), "data": {"synth": {"root": "data"}}}
        save_weights(network, card, file)
    name = "network.embed.weight"
    first, second = (network.state_dict()[name] for network in networks[:2])
    torch.testing.assert_close(ship.averaged(files[:2]).state_dict()[name], (first + second) / 2)
    with pytest.raises(ValueError, match="2.safetensors has another network"):
        ship.averaged(files)


def test_only_runs_on_rendered_audio_are_shipped(tiny_weights: Path, tmp_path: Path) -> None:
    card = load(tiny_weights).card | {"data": {"batch_size": 3, "archive": "MusicNet"}}
    save_weights(load(tiny_weights), card, tmp_path / "best.safetensors")
    status, _, error = run(ship.main, tmp_path, "--name", "mine", "--out", tmp_path / "out")
    assert status == 1
    assert "was not trained on rendered audio" in error


class LinearEvidence:
    """Evidence with scores that are linear in the piano's end bias, with a slope per group."""

    families = ("piano",)
    halves: tuple[dict[str, None], ...] = ({"piano": None}, {"piano": None})

    def __init__(self, *slopes: float) -> None:
        self.slopes = slopes

    def scores(self, settings: TrackerSettings, _: str) -> list[float]:
        bias = value_of(settings, "end_biases.piano")
        return [0.5 + slope * bias / 100 for slope in self.slopes]


@pytest.mark.parametrize(
    ("slopes", "changes"),  # slopes of rendered passages and of two halves of the recordings
    [
        ((0.0, 1.0, 1.0), True),
        ((-0.1, 1.0, 1.0), True),
        ((1.0, 0.0, 0.0), True),
        ((0.0, 2.0, -1.0), False),  # One half becomes worse.
        ((-1.0, 1.5, 1.5), False),  # Rendered passages become worse.
        ((0.05, 0.05, 0.05), False),  # The gain is too small.
    ],
)
def test_settings_change_only_if_all_groups_agree(slopes: tuple[float, ...], changes: bool) -> None:
    evidence = cast(Evidence, LinearEvidence(*slopes))
    settings = settings_by_evidence(evidence, TrackerSettings())
    assert (value_of(settings, "end_biases.piano") > 1) == changes
    assert settings.onset_thresholds == {}


def test_recordings_of_each_set_are_halved(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="no sub-folder"):
        recorded_passages(tmp_path / "maps")
