import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

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


def test_passages_of_every_family_are_deterministic(synth_config: SynthConfig) -> None:
    one, same = (validation_passages(synth_config, 1, 4.0) for _ in range(2))
    assert [name for name in FAMILIES if name in one] == list(one)
    assert {"piano", "bowed", "reeds and flutes", "ensembles", "no notes"} == one.keys()
    for name, passages in one.items():
        assert len(passages) == 1
        assert np.array_equal(passages[0].audio, same[name][0].audio)
        assert bool(len(passages[0].notes)) == (name != "no notes")


def part(synth: SynthConfig, root: Path, rows: str, **entry: str) -> Passage:
    """Return a passage of a silent recording of 10 s with these notes."""
    soundfile.write(root / "a.wav", np.zeros(10 * SAMPLE_RATE), SAMPLE_RATE)
    (root / "a.tsv").write_text(rows)
    index = [{"id": "a", "audio": "a.wav", "labels": ["a.tsv"], "split": "validation", **entry}]
    (root / "index.json").write_text(json.dumps(index))
    passages = validation_passages(replace(synth, real_root=root), 2, 4.0)
    return passages[CLASSES[entry["instruments"]]][0]


def test_an_excerpt_masks_notes_that_started_before_it(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    notes = "0.1\t9.9\t60\n5.0\t5.2\t64\n"
    one = part(synth_config, tmp_path, notes, instruments="guitar", label_kind="exact")
    begin_s = float(one.name.partition("@")[2])
    assert begin_s > 0.1
    assert 60 not in one.notes.pitch
    assert (one.notes.onset >= 0).all()
    assert one.unknown[:, 2].tolist() == [60]
    assert one.unknown[0, 1] == pytest.approx(9.9 - begin_s, abs=0.1)


def test_approximate_onsets_count_by_note_but_not_by_frame(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    notes = "".join(f"{second}.0\t{second}.9\t60\n" for second in range(10))
    one = part(synth_config, tmp_path, notes, instruments="voice", label_kind="approximate")
    assert set(one.unknown[:, 3]) == {FRAME_UNKNOWN}
    (windows,) = family_windows({"voice": [one]}, 0).values()
    assert windows.targets.onset_unknown.all()
    assert not windows.targets.frame_unknown.all()


def test_the_mean_weighs_families_equally(synth_config: SynthConfig) -> None:
    torch.manual_seed(0)
    network = TranscriptionModel(TINY)
    passages = validation_passages(synth_config, 1, 4.0)
    few = {name: passages[name] for name in ("piano", "bowed", "no notes")}
    windows = family_windows(few, TINY.context)
    predictions = {name: predict_windows(network, batch) for name, batch in windows.items()}
    found = family_metrics(TINY, predictions, windows)
    means = [found[f"{head}_ap:{name}"] for head in ("frame", "onset") for name in list(few)[:2]]
    assert found["families"] == pytest.approx(np.mean(means))
    assert found["false_onsets_min:no notes"] >= 0
