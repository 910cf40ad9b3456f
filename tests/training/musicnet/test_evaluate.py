"""The paper's figure and note-level scores on a small archive."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from model.config import HOP, WINDOW
from model.storage import load
from tests.training.musicnet.conftest import scale
from training.evaluate import main
from training.music.metrics import DELAY_FIGURES, FIGURES
from training.musicnet.evaluate import labelled_test_set
from training.musicnet.layout import find
from training.musicnet.windows import ArchiveConfig, open_tracks


def test_the_papers_figure_is_that_of_the_middle_frames(
    archive: Path, tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    arguments = ["--data-dir", str(archive), "--model", str(tiny_weights), "--json", str(out)]
    assert main(["musicnet", *arguments, "--stride", "1280", "--jobs", "1"]) == 0
    report = json.loads(out.read_text())
    assert set(report["mean"]) == {*FIGURES, *DELAY_FIGURES}  # note-level scores, by mir_eval
    assert set(report["recordings"]) == {"2303", "1819"}

    rate, transcriber = 11_025, load(tiny_weights, dtype=torch.float32)
    predicted, truth = [], []
    for number in (2303, 1819):
        (track,) = open_tracks([find(archive)[number]], rate, archive / "again")
        for begin in range(rate, len(track.audio) - WINDOW + 1, 10 * HOP):
            window = torch.from_numpy(np.array(track.audio[begin : begin + WINDOW]))
            predicted.append(transcriber.predict(window[None])[0, 0, 31].numpy())
            middle = begin + WINDOW // 2
            sounding = {n for b, e, n in scale(number) if b // 4 <= middle < e // 4}
            truth.append([note in sounding for note in range(128)])
    expected = average_precision_score(np.ravel(truth), np.ravel(predicted))
    assert report["paper"]["average_precision"] == pytest.approx(expected, rel=1e-3)
    assert report["paper"]["windows"] == len(predicted)
    figure = report["paper"]["average_precision"]
    assert f"average precision of middle frames: {figure:.4f}" in capsys.readouterr().out


def test_the_reference_notes_are_those_of_the_labels(archive: Path) -> None:
    recordings = labelled_test_set(ArchiveConfig(archive, test="ten")).recordings
    assert {recording.name for recording in recordings} == {"1819", "2303", "2556"}
    notes = next(r.notes for r in recordings if r.name == "2303")
    begin, end, pitch = scale(2303)[5]
    assert notes.onset_s[5] == pytest.approx(begin / 44_100)
    assert notes.offset_s[5] == pytest.approx(end / 44_100)
    assert notes.pitch[5] == pitch
