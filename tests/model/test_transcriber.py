"""Transcription networks: shapes, alignment, streams."""

import pytest
import torch

from model.config import HOP, WINDOW, ModelConfig
from model.transcriber import TranscriptionModel
from tests.networks import FILTERBANK, STRIDED


@pytest.mark.parametrize("config", [FILTERBANK, STRIDED], ids=["filterbank", "strided"])
def test_a_stream_of_windows_gives_what_whole_windows_give(config: ModelConfig) -> None:
    torch.manual_seed(0)
    transcriber = TranscriptionModel(config).eval()
    context = config.context
    audio = torch.cat([torch.zeros(context), torch.randn(WINDOW + 100 * HOP) * 0.1])
    stream = transcriber.open_stream()
    begin = 0
    for hops in (0, 4, 1, 33) if context else (0, 4, 1, 33, 60):
        begin += hops * HOP
        window = audio[begin : begin + context + WINDOW]
        features = stream.advance(window[context:], hops)
        torch.testing.assert_close(
            transcriber.predict_features(features[None]),
            transcriber.predict(window[None]),
            atol=1e-5,
            rtol=0,
        )


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="8192"):
        TranscriptionModel(STRIDED).predict(torch.zeros(1, 100))
