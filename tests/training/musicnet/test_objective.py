"""The terms of the paper's objective, each by hand, and made-up tones to try it on."""

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from model.config import PITCHES
from training.loop.parallel import Shard
from training.musicnet.objective import TEXT_TERMS, FrameTerms, frame_loss
from training.musicnet.tones import tone_stream

NONE = FrameTerms(middle=0.0, regular=0.0, others=0.0, calibration=0.0, smoothing=0.0)


def test_a_term_of_weight_zero_is_left_out() -> None:
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
    quiet = torch.full_like(raw, 0.025)
    assert loss(others=1.0)[0] == pytest.approx(entropy(raw - 4, quiet))
    smoothed = 0.9 * labels + 0.05
    assert loss(middle=1.0, smoothing=0.1)[0] == pytest.approx(
        entropy(logits[:, 1], smoothed[:, 1])
    )
    text = {name: value for name, value in vars(TEXT_TERMS).items() if value}
    assert text.keys() == {"middle", "regular"}


def test_tones_are_a_function_of_seed_step_and_share_and_sound_where_labelled() -> None:
    def batches(step: int, shard: Shard) -> list[np.ndarray]:
        stream = tone_stream(4, 11_025, 256, 3, step, shard)
        return [next(stream).audio for _ in range(2)]

    assert np.array_equal(batches(0, Shard())[1], batches(1, Shard())[0])
    one, other = (batches(0, Shard(index, 2))[0] for index in range(2))
    assert len(one) == len(other) == 2
    assert not np.array_equal(one, other)
    batch = next(tone_stream(4, 11_025, 256, 3, 0, Shard()))
    assert not batch.audio[:, :256].any()
    levels = np.abs(batch.audio[:, 256 + 128 :].reshape(4, 63, 128)).max(axis=2)
    sounding = batch.targets.frame.any(axis=2)
    assert levels[sounding].min() > levels[~sounding].mean()
