"""Transcription networks: shapes, alignment, streams, configuration."""

from dataclasses import replace

import pytest
import torch

from model.config import (
    CENTRE_FRAME,
    CONFIGS,
    HOP,
    LIVE,
    PITCHES,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
    RSEConfig,
)
from model.transcriber import StridedNetwork, TranscriptionModel

SMALL_RSE = RSEConfig(maps=8, blocks=1)
SMALL_LIVE = replace(LIVE, front_end=FilterbankConfig(channels=4), rse=SMALL_RSE)
SMALL_PAPER = ModelConfig(rse=SMALL_RSE)
SMALL_HISTORY = replace(
    LIVE, front_end=FilterbankConfig(channels=4, lookahead=256, history=True), rse=SMALL_RSE
)
BOTH = pytest.mark.parametrize(
    "config", [SMALL_LIVE, SMALL_HISTORY, SMALL_PAPER], ids=["filterbank", "history", "strided"]
)


@BOTH
def test_a_stream_of_windows_gives_what_whole_windows_give(config: ModelConfig) -> None:
    torch.manual_seed(0)
    transcriber = TranscriptionModel(config).eval()
    context = config.context
    audio = torch.cat([torch.zeros(context), torch.randn(WINDOW + 100 * HOP) * 0.1])
    stream = transcriber.open_stream()
    begin = 0
    for hops in (64, 4, 1, 32) if context else (64, 4, 1, 32, 60):
        begin += hops * HOP if begin or hops != 64 else 0
        window = audio[begin : begin + context + WINDOW]
        features = stream.advance(window[context:], hops)
        torch.testing.assert_close(
            transcriber.predict_features(features[None]),
            transcriber.predict(window[None]),
            atol=1e-5,
            rtol=0,
        )


@pytest.mark.parametrize("begin", [0, 7])
def test_a_front_end_with_history_forgets_where_it_began(begin: int) -> None:
    """After ``refill_hops`` a stream that began in the middle is as one that heard everything."""
    config = SMALL_HISTORY
    transcriber = TranscriptionModel(config).eval()
    audio = torch.randn(WINDOW + (begin + config.refill_hops) * HOP) * 0.1
    rows = []
    for first in (0, begin):
        stream = transcriber.open_stream()
        for hop in range(first, begin + config.refill_hops + 1):
            row = stream.advance(audio[hop * HOP : hop * HOP + WINDOW], 1)
        rows.append(row)
    assert torch.equal(*rows)


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="8192"):
        TranscriptionModel(SMALL_PAPER).predict(torch.zeros(1, 100))


def test_the_middle_frame_is_read_from_the_released_position() -> None:
    network = TranscriptionModel(SMALL_PAPER).eval().network
    assert isinstance(network, StridedNetwork)
    window = torch.randn(1, WINDOW)
    raw = network.raw(window)
    assert raw.shape == (1, 2048, PITCHES)
    torch.testing.assert_close(network(window)[0, 0, CENTRE_FRAME], raw[0, 992] - 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"front_end": {"kind": "wavelet"}}, "wavelet"),
        ({"colour": 3}, "colour"),
        ({"heads": ["onset"]}, "frame"),
    ],
)
def test_configurations_with_unknown_parts_are_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_json({**LIVE.to_json(), **change})


def test_the_paper_network_has_the_papers_size() -> None:
    count = sum(p.numel() for p in TranscriptionModel(CONFIGS["released"]).parameters())
    assert count == 3_204_000
    assert round(count / 2**20, 2) == 3.06  # "3.06 M" in the paper counts in 2^20
