"""Scores against length."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import RSEConfig
from model.storage import save_weights
from model.symbols import SymbolConfig, SymbolNetwork
from training.algorithmic.data import PROBLEMS, Examples
from training.algorithmic.evaluate import (
    draw_examples,
    evaluate_run,
    main,
    score_examples,
)


class Oracle(nn.Module):
    """Sorts, padding left in place; spoils one symbol of every second sequence if asked to."""

    def __init__(self, spoil: bool = False) -> None:
        super().__init__()
        self.device = nn.Parameter(torch.zeros(1))
        self.spoil = spoil

    def forward(self, symbols: Tensor) -> Tensor:
        out = symbols.where(symbols != 0, 99).sort(dim=1).values
        out = out.where(out != 99, 0)
        if self.spoil:
            out[::2, 0] = out[::2, 0] % 11 + 1
        return F.one_hot(out, 12).float()


def test_symbols_are_pooled_and_sequences_counted() -> None:
    examples = draw_examples(PROBLEMS["sorting"], np.random.default_rng(0), 16, 50)
    score = score_examples(Oracle(spoil=True), examples)
    assert score.sequence_accuracy == 0.5
    assert score.symbol_accuracy == pytest.approx(1 - 25 / (50 * 16))


def test_padding_counts_only_where_it_is_taken_for_a_symbol() -> None:
    inputs = np.array([[3, 1, 0, 0]], dtype=np.uint8)
    right = Examples(inputs, np.array([[1, 3, 0, 0]], dtype=np.uint8))
    longer = Examples(inputs, np.array([[1, 3, 5, 0]], dtype=np.uint8))
    assert score_examples(Oracle(), right).symbol_accuracy == 1
    assert score_examples(Oracle(), longer).symbol_accuracy == pytest.approx(2 / 3)


def test_a_runs_checkpoint_is_scored_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = PROBLEMS["addition"]
    config = SymbolConfig(problem.vocabulary, problem.classes, RSEConfig(maps=4, blocks=1))
    card = {"name": "addition", "config": config.to_json()}
    save_weights(SymbolNetwork(config), card, tmp_path / "best.safetensors")
    assert main([str(tmp_path), "--longest", "16", "--examples", "8"]) == 0
    assert "| 16 |" in capsys.readouterr().out
    result = json.loads((tmp_path / "generalisation.json").read_text())
    assert [score["length"] for score in result["scores"]] == [8, 16]
    again = evaluate_run(tmp_path, "best", (8, 16), 8)
    assert again[1].symbol_accuracy == result["scores"][1]["symbol_accuracy"]
