"""Tests that streams with cached layers give the same numbers as the plain network."""

from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from model.config import (
    ACCURATE,
    FRAMES,
    HOP,
    LIVE,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
    RSEConfig,
)
from tests.model.fast.test_network import plain_and_fast_networks
from tests.networks import assert_same_outputs

POSITIONS, WIDE_POSITIONS = slice(50, 54), slice(22, 54)
TOLERANCE = 2e-4  # Long filters use decimated audio, which changes probabilities.
_SMALL = FilterbankConfig(channels=4, convolutions=2, lookahead=256)
CONFIGS = {
    "live": replace(LIVE, front_end=_SMALL, rse=RSEConfig(maps=6, blocks=1)),
    "accurate": replace(ACCURATE, front_end=_SMALL, rse=RSEConfig(maps=6, blocks=2)),
    "no look-ahead": replace(
        LIVE, front_end=replace(_SMALL, lookahead=128, convolutions=0), rse=RSEConfig(maps=6)
    ),
}
EACH_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
HOPS = st.lists(st.one_of(st.integers(1, 33), st.sampled_from([2, 4, 8, 16])), max_size=6)


def noise(hops: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.1 * torch.randn(WINDOW + hops * HOP, generator=generator)


@EACH_CONFIG
@settings(max_examples=5)
@given(hops=HOPS, shift=st.sampled_from([0, 0, 1, -3]))
def test_a_stream_equals_whole_windows(config: ModelConfig, hops: list[int], shift: int) -> None:
    transcriber, fast = plain_and_fast_networks(config)
    context = config.context
    audio = torch.cat([torch.zeros(context), noise(sum(hops))])
    stream = fast.open_stream(POSITIONS)
    start = 0
    for step in (0, *hops):
        positions = WIDE_POSITIONS if step > 16 else POSITIONS
        stream.frames = range(FRAMES)[positions]
        start += step * HOP
        window = audio[start : start + context + WINDOW]
        row = stream.advance(window[context:], step, shift)
        features = F.pad(window, (0, 1), value=shift)[None]
        expected = transcriber.predict_features(features)[:, :, positions]
        predictions = fast.predict_rows([row], positions)
        assert_same_outputs(config, predictions.numpy(), expected.numpy(), TOLERANCE)


@EACH_CONFIG
@settings(max_examples=5)
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), step=st.sampled_from([32, 16, 7]))
def test_batches_equal_single_windows(config: ModelConfig, sizes: list[int], step: int) -> None:
    """Batches of any size leave the stream in the same state as single windows."""
    _, fast = plain_and_fast_networks(config)
    hops = [32] * sum(sizes) + [step] * 3
    audio = noise(sum(hops))
    windows = [audio[start * HOP :][:WINDOW] for start in accumulate(hops)]
    single, batched = fast.open_stream(POSITIONS), fast.open_stream(POSITIONS)
    for stream in (single, batched):
        stream.advance(audio[:WINDOW], 32)
    expected = [single.advance(window, n) for window, n in zip(windows, hops, strict=True)]
    rows: list[Tensor] = []
    for size in [*sizes, 1, 1, 1]:
        batch, new_hops = windows[len(rows) :][:size], hops[len(rows)]
        if size > 1 and batched.can_batch(new_hops):
            rows += batched.advance_batch(batch, new_hops)
        else:
            rows += [batched.advance(window, new_hops) for window in batch]
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=0)


@EACH_CONFIG
@pytest.mark.parametrize("step", [1, 8])
def test_preroll_restores_the_streaming_state(config: ModelConfig, step: int) -> None:
    """After ``preroll_hops``, streams with different starts have identical bits."""
    _, fast = plain_and_fast_networks(config)
    preroll = -(-config.preroll_hops // step)
    audio = noise((preroll + 3) * step)
    rows = []
    for first in (0, 3):
        stream = fast.open_stream(POSITIONS)
        for n in range(first, first + preroll + (4 if first == 0 else 1)):
            row = stream.advance(audio[n * step * HOP :][:WINDOW], step, shift=n // 5 % 3 - 1)
        rows.append(row)
    assert torch.equal(*rows)
