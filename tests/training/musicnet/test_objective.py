"""Test of the terms of the paper's objective."""

import pytest
import torch
from torch.nn.functional import logsigmoid

from model.config import PITCHES
from training.musicnet.objective import TEXT_TERMS, FrameTerms, frame_loss

NONE = FrameTerms(middle=0.0, regular=0.0, others=0.0, calibration=0.0, smoothing=0.0)


def test_each_term_has_its_own_weight() -> None:
    logits, raw = torch.randn(2, 3, PITCHES), torch.randn(2, 96, PITCHES)
    labels = (torch.rand(2, 3, PITCHES) < 0.1).float()
    calibrated = 2 * logits[:, 1]

    def loss(**weights: float) -> tuple[float, set[str]]:
        terms = FrameTerms(**{**vars(NONE), **weights})  # type: ignore[arg-type]
        total, parts = frame_loss(logits, raw, calibrated, labels, terms)
        return total.item(), set(parts)

    def entropy(logit: torch.Tensor, label: torch.Tensor) -> float:
        return -(label * logsigmoid(logit) + (1 - label) * logsigmoid(-logit)).mean().item()

    assert loss() == (0, set())
    assert loss(middle=1.0)[0] == pytest.approx(entropy(logits[:, 1], labels[:, 1]))
    assert loss(regular=2.0)[0] == pytest.approx(2 * entropy(logits, labels))
    assert loss(calibration=1.0)[0] == pytest.approx(entropy(calibrated, labels[:, 1]))
    others_labels = torch.full_like(raw, 0.025)
    assert loss(others=1.0)[0] == pytest.approx(entropy(raw - 4, others_labels))
    smoothed = 0.9 * labels + 0.05
    assert loss(middle=1.0, smoothing=0.1)[0] == pytest.approx(
        entropy(logits[:, 1], smoothed[:, 1])
    )
    text = {name: value for name, value in vars(TEXT_TERMS).items() if value}
    assert text.keys() == {"middle", "regular"}
