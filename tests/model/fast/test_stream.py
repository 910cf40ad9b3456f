"""Streams that keep what stays from window to window give the plain network's numbers."""

from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from model.config import ACCURATE, HOP, LIVE, WINDOW, FilterbankConfig, ModelConfig, RSEConfig
from model.fast.network import NetworkStream
from tests.model.fast.test_network import networks
from tests.networks import assert_same_outputs

POSITIONS = slice(50, 54)
TOLERANCE = 2e-4  # long filters use decimated audio, which changes probabilities
_SMALL = FilterbankConfig(channels=4, convolutions=2, lookahead=256)
CONFIGS = {
    "live": replace(LIVE, front_end=_SMALL, rse=RSEConfig(maps=6, blocks=1)),
    "accurate": replace(ACCURATE, front_end=_SMALL, rse=RSEConfig(maps=6, blocks=2)),
    "no look-ahead": replace(
        LIVE,
        front_end=replace(_SMALL, lookahead=128, convolutions=0),
        rse=RSEConfig(maps=6),
    ),
}
ALL = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
HOPS = st.lists(st.one_of(st.integers(1, 33), st.sampled_from([2, 4, 8, 16])), max_size=6)


def noise(hops: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.1 * torch.randn(WINDOW + hops * HOP, generator=generator)


@ALL
@settings(max_examples=5)
@given(hops=HOPS, shift=st.sampled_from([0, 0, 1, -3]))
def test_a_stream_gives_what_whole_windows_give(
    config: ModelConfig, hops: list[int], shift: int
) -> None:
    transcriber, fast = networks(config)
    context = config.context
    audio = torch.cat([torch.zeros(context), noise(sum(hops))])
    stream = fast.open_stream(POSITIONS)
    begin = 0
    for step in (0, *hops):
        begin += step * HOP
        window = audio[begin : begin + context + WINDOW]
        row = stream.advance(window[context:], step, shift)
        whole = F.pad(window, (0, 1), value=shift)[None]
        wanted = transcriber.predict_features(whole)[:, :, POSITIONS]
        got = fast.predict_rows([row], POSITIONS)
        assert_same_outputs(config, got.numpy(), wanted.numpy(), TOLERANCE)


@ALL
@settings(max_examples=5)
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), step=st.sampled_from([32, 16, 7]))
def test_windows_are_the_same_together(config: ModelConfig, sizes: list[int], step: int) -> None:
    """Any number of windows gives the same features, and any continuation of the stream."""
    _, fast = networks(config)
    hops = [32] * sum(sizes) + [step] * 3
    audio = noise(sum(hops))
    windows = [audio[begin * HOP :][:WINDOW] for begin in accumulate(hops)]
    alone, together = fast.open_stream(POSITIONS), fast.open_stream(POSITIONS)
    for stream in (alone, together):
        stream.advance(audio[:WINDOW], 32)
    expected = [alone.advance(*one) for one in zip(windows, hops, strict=True)]
    rows: list[Tensor] = []
    for size in [*sizes, 1, 1, 1]:
        given, moved = windows[len(rows) :][:size], hops[len(rows)]
        if size > 1 and isinstance(together, NetworkStream) and together.can_batch(moved):
            rows += together.advance_batch(given, moved)
        else:
            rows += [together.advance(window, moved) for window in given]
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=0)


@ALL
@pytest.mark.parametrize("step", [1, 3, 8])
def test_a_stream_forgets_where_it_began(config: ModelConfig, step: int) -> None:
    """After ``preroll_hops`` a stream from the middle has the bits of one from the start."""
    _, fast = networks(config)
    preroll = -(-config.preroll_hops // step)
    audio = noise((preroll + 3) * step)
    rows = []
    for first in (0, 3):
        stream = fast.open_stream(POSITIONS)
        for number in range(first, first + preroll + (4 if first == 0 else 1)):
            shift = number // 5 % 3 - 1
            row = stream.advance(audio[number * step * HOP :][:WINDOW], step, shift)
        rows.append(row)
    assert torch.equal(*rows)
