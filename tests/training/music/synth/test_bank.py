import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from training.music.synth.bank import Bank, load_bank
from training.music.synth.casting import cast
from training.music.synth.config import SynthConfig
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
    bank: Bank, synth_config: SynthConfig
) -> None:
    config = replace(synth_config, piano_probability=0.0, reorchestrate_probability=0.0)
    (piece,) = (
        piece for piece in load_pieces(config.root, "train") if piece.ensemble == "string quartet"
    )
    players = cast(
        piece, piece.notes, list(bank.instruments.values()), config, np.random.default_rng(3)
    )
    assert [entry.class_name for entry in players] == ["violin", "cello"]
