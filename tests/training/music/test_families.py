"""Tests of the validation passages of instrument families, and of their metrics."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from model.config import SAMPLE_RATE
from model.transcriber import TranscriptionModel
from tests.networks import TINY
from training.music.families import (
    FAMILIES,
    Passage,
    family_metrics,
    family_windows,
    predict_windows,
    validation_passages,
)
from training.music.notes import FRAME_UNKNOWN
from training.music.real import CLASSES
from training.music.synth.config import SynthConfig
from training.music.targets import PEDAL_SCALE


def test_passages_of_every_family_are_deterministic(synth_config: SynthConfig) -> None:
    first, second = (validation_passages(synth_config, 1, 4.0) for _ in range(2))
    assert [name for name in FAMILIES if name in first] == list(first)
    assert {"piano", "bowed", "reeds and flutes", "ensembles", "no notes"} == first.keys()
    for name, passages in first.items():
        assert len(passages) == 1
        assert np.array_equal(passages[0].audio, second[name][0].audio)
        assert bool(len(passages[0].notes)) == (name != "no notes")


def passage_with_labels(synth: SynthConfig, root: Path, rows: str, **entry: str) -> Passage:
    """Return a passage of a silent recording of 10 s with these label rows."""
    soundfile.write(root / "a.wav", np.zeros(10 * SAMPLE_RATE), SAMPLE_RATE)
    (root / "a.tsv").write_text(rows)
    index = [{"id": "a", "audio": "a.wav", "labels": ["a.tsv"], "split": "validation", **entry}]
    (root / "index.json").write_text(json.dumps(index))
    passages = validation_passages(replace(synth, real_root=root), 2, 4.0)
    return passages[CLASSES[entry["instruments"]]][0]


def test_notes_that_started_before_a_passage_are_masked(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    notes = "0.1\t9.9\t60\n5.0\t5.2\t64\n"
    passage = passage_with_labels(
        synth_config, tmp_path, notes, instruments="guitar", label_kind="exact"
    )
    start_s = float(passage.name.partition("@")[2])
    assert start_s > 0.1
    assert 60 not in passage.notes.pitch
    assert (passage.notes.onset >= 0).all()
    assert passage.unknown[:, 2].tolist() == [60]
    assert passage.unknown[0, 1] == pytest.approx(9.9 - start_s, abs=0.1)


def test_approximate_onsets_are_masked_in_windows(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    notes = "".join(f"{second}.0\t{second}.9\t60\n" for second in range(10))
    passage = passage_with_labels(
        synth_config, tmp_path, notes, instruments="voice", label_kind="approximate"
    )
    assert set(passage.unknown[:, 3]) == {FRAME_UNKNOWN}
    (windows,) = family_windows({"voice": [passage]}, 0).values()
    assert windows.targets.onset_unknown.all()
    assert not windows.targets.frame_unknown.all()


def test_the_mean_weighs_families_equally(synth_config: SynthConfig) -> None:
    network = TranscriptionModel(TINY)
    passages = validation_passages(synth_config, 1, 4.0)
    selected = {name: passages[name] for name in ("piano", "bowed", "no notes")}
    windows = family_windows(selected, TINY.context)
    predictions = {name: predict_windows(network, batch) for name, batch in windows.items()}
    metrics = family_metrics(TINY, predictions, windows)
    values = [metrics[f"{head}_ap:{f}"] for head in ("frame", "onset") for f in ("piano", "bowed")]
    assert metrics["families"] == pytest.approx(np.mean(values))
    assert metrics["false_onsets_min:no notes"] >= 0
    assert (windows["piano"].targets.pedal <= PEDAL_SCALE).any()  # the pedal is known
