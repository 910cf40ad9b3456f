"""Tests that the network for inference gives the same numbers as the plain network."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from model.config import FRAMES, HOP, LIVE, WINDOW, FilterbankConfig, ModelConfig, RSEConfig
from model.fast.network import FastNetwork, fast_network
from model.fast.pruning import prune
from model.fast.shuffle_exchange import FastShuffleExchange
from model.rse import ResidualShuffleExchange
from model.storage import load, shipped
from model.transcriber import TranscriptionModel
from tests.networks import FILTERBANK, STRIDED

FRAME_RANGES = [slice(0, FRAMES), slice(31, 32), slice(30, 46), slice(52, 56), slice(62, 63)]
SMALL = RSEConfig(maps=6, blocks=2)


def randomise(network: nn.Module) -> nn.Module:
    """Change every parameter and statistic, since initial values can hide errors."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if "filterbank" not in name and tensor.is_floating_point():
                tensor.mul_(torch.empty_like(tensor).uniform_(0.8, 1.2))
                tensor.add_(torch.empty_like(tensor).uniform_(0.0, 0.05))
    return network.eval()


def plain_and_fast_networks(config: ModelConfig) -> tuple[TranscriptionModel, FastNetwork]:
    transcriber = TranscriptionModel(config)
    randomise(transcriber)
    fast = fast_network(transcriber)
    assert fast is not None
    return transcriber, fast


@pytest.mark.parametrize("length", [2, 4, 64])
@torch.inference_mode()
def test_the_exchange_network_computes_selected_positions(length: int) -> None:
    network = randomise(ResidualShuffleExchange(SMALL))
    assert isinstance(network, ResidualShuffleExchange)
    fast = FastShuffleExchange(network, torch.float32)
    x = 0.25 * torch.randn(3, length, 6)
    expected = network(x)
    for selected in (range(length), range(length - 1, length), range(0, length, 3)):
        torch.testing.assert_close(
            fast(x, selected), expected[:, list(selected)], atol=2e-6, rtol=1e-5
        )


def test_pruning_leaves_the_units_of_one_position() -> None:
    gathers = [layer.gather for layer in prune(8, 1, range(77, 78))]
    units = [len({position // 2 for position in gather}) if gather else 128 for gather in gathers]
    assert units == [128] * 8 + [64, 32, 16, 8, 4, 2, 1]


SMALL_CONFIGS = {
    "live": replace(LIVE, front_end=FilterbankConfig(channels=6), rse=replace(SMALL, blocks=1)),
    "calibrated": replace(FILTERBANK, rse=SMALL, calibration=True),
}


@pytest.mark.parametrize("config", SMALL_CONFIGS.values(), ids=SMALL_CONFIGS)
def test_selected_frames_equal_those_of_the_plain_network(config: ModelConfig) -> None:
    transcriber, fast = plain_and_fast_networks(config)
    features = torch.stack(
        [transcriber.open_stream().advance(0.1 * torch.randn(WINDOW), 1) for _ in range(2)]
    )
    expected = transcriber.predict_features(features)
    for frames in FRAME_RANGES:
        predictions = fast.predict(features, frames)
        assert predictions.dtype == torch.float32
        torch.testing.assert_close(predictions, expected[:, :, frames], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "config",
    [
        STRIDED,
        replace(FILTERBANK, rse=replace(SMALL, norm="sequence")),
        replace(FILTERBANK, rse=replace(SMALL, residual_scale="one")),
        replace(FILTERBANK, rse=replace(SMALL, shuffle="paper")),
        replace(FILTERBANK, rse=replace(SMALL, unit="gated")),
    ],
)
def test_unsupported_networks_have_no_fast_version(config: ModelConfig) -> None:
    assert fast_network(TranscriptionModel(config)) is None


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-4), (torch.bfloat16, 0.06)])
def test_shipped_networks_process_a_stream(name: str, dtype: torch.dtype, tolerance: float) -> None:
    transcriber = load(name, dtype=torch.float32)
    torch.manual_seed(1)
    context = transcriber.config.context
    audio = torch.cat([torch.zeros(context), 0.1 * torch.randn(WINDOW + 13 * HOP)])
    frames = slice(46, 54)
    expected = transcriber.predict(audio[None, 13 * HOP :])[:, :, frames]
    fast = fast_network(transcriber.compute_in(dtype))
    assert fast is not None
    stream = fast.open_stream(frames)
    start = context
    for hops in (0, 4, 1, 8):
        start += hops * HOP
        row = stream.advance(audio[start : start + WINDOW], hops)
    difference = (fast.predict_rows([row], frames) - expected).abs()
    difference = difference[:, : len(transcriber.config.heads)]
    assert difference.max() < tolerance
    assert (difference.max() > 4e-4) == (dtype == torch.bfloat16)
    assert difference.mean() < tolerance / 6
