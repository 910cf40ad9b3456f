import numpy as np
import pytest
import torch

from model.transcriber import TranscriptionModel
from tests.networks import TINY
from training.music.families import FAMILIES, validation_passages
from training.music.family_metrics import family_metrics, family_windows
from training.music.synth.config import SynthConfig


def test_passages_of_every_family_are_deterministic(synth_config: SynthConfig) -> None:
    one, same = (validation_passages(synth_config, 1, 4.0) for _ in range(2))
    assert [name for name in FAMILIES if name in one] == list(one)
    assert {"piano", "bowed", "reeds and flutes", "ensembles", "no notes"} == one.keys()
    for name, passages in one.items():
        assert len(passages) == 1
        assert np.array_equal(passages[0].audio, same[name][0].audio)
        assert bool(len(passages[0].notes)) == (name != "no notes")


def test_families_are_judged_alike(synth_config: SynthConfig) -> None:
    torch.manual_seed(0)
    network = TranscriptionModel(TINY)
    passages = validation_passages(synth_config, 1, 4.0)
    few = {name: passages[name] for name in ("piano", "bowed", "no notes")}
    found = family_metrics(network, family_windows(few, TINY.context))
    means = [found[f"{head}_ap:{name}"] for head in ("frame", "onset") for name in list(few)[:2]]
    assert found["families"] == pytest.approx(np.mean(means))
    assert found["false_onsets_min:no notes"] >= 0
