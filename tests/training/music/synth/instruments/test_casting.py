from dataclasses import replace

import numpy as np

from training.music.synth.config import SynthConfig
from training.music.synth.instruments.bank import Bank
from training.music.synth.instruments.casting import cast, fitting
from training.music.synth.scores import load_pieces


def test_an_instrument_is_taken_that_reaches_the_notes(bank: Bank) -> None:
    entries = list(bank.instruments.values())
    violins = [entry for entry in entries if entry.instrument == "violin"]
    rng = np.random.default_rng(2)
    assert fitting(violins, np.array([60, 70], np.int16), entries, rng).instrument == "violin"
    low = fitting(violins, np.array([38, 45], np.int16), entries, rng)
    assert low.instrument in ("piano", "cello")


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
