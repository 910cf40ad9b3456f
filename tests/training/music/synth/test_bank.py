import shutil
from pathlib import Path

import numpy as np
import pytest

from training.music.synth.bank import Bank, load_bank
from training.music.synth.config import SynthConfig
from training.music.synth.perform import cast
from training.music.synth.scores import load_pieces


def test_the_cache_is_used_and_gives_the_same(synth_config: SynthConfig, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(synth_config.root, root)
    first = load_bank(root, tmp_path / "cache")
    shutil.rmtree(root / "bank")
    again = load_bank(root, tmp_path / "cache")
    np.testing.assert_array_equal(first.samples, again.samples)
    for name, entry in first.instruments.items():
        np.testing.assert_array_equal(entry.audible, again.instruments[name].audible)


def test_scores_that_keep_their_instruments_get_those_of_their_programs(
    bank: Bank, synth_config: SynthConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.music.synth.perform.OTHERS_PIANO", 0.0)
    monkeypatch.setattr("training.music.synth.perform.REORCHESTRATED", 0.0)
    pieces = load_pieces(synth_config.root, "train")
    (piece,) = (piece for piece in pieces if piece.ensemble == "string quartet")
    usable = list(bank.instruments.values())
    players = cast(piece, piece.notes, usable, np.random.default_rng(3))
    assert [entry.class_name for entry in players] == ["violin", "cello"]
