"""The cache of windows: the network's own results, within its limit."""

from __future__ import annotations

import pytest
import torch

from model.config import FRAMES
from tests.fakes import FAKE_PITCHES, FakeTranscriber
from training.evaluation import window_memo
from training.evaluation.window_memo import WindowMemo


def rows(first: int, last: int) -> torch.Tensor:
    """Features of different windows, one per number."""
    every = torch.rand(last, FRAMES, len(FAKE_PITCHES), generator=torch.Generator().manual_seed(0))
    return every[first:]


def test_a_window_is_computed_once_and_beyond_the_limit_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, memo = FakeTranscriber(), WindowMemo(FakeTranscriber())
    for windows in (rows(0, 4), rows(2, 6), rows(0, 6).flip(0)):
        assert torch.equal(memo.predict_features(windows), plain.predict_features(windows))
    assert memo.computed == 6
    memo = WindowMemo(FakeTranscriber())
    two = plain.predict_features(rows(0, 2)).nbytes
    monkeypatch.setattr(window_memo, "MAX_CACHED_BYTES", two)
    for _ in range(2):
        for windows in (rows(0, 2), rows(2, 4)):
            assert torch.equal(memo.predict_features(windows), plain.predict_features(windows))
    assert memo.computed == 2 + 2 + 2
