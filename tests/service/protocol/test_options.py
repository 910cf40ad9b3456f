"""Options of a stream: derived numbers and refusals."""

from typing import Any

import pytest

from service.protocol.options import (
    AudioFormat,
    Mode,
    OptionsError,
    SampleRateError,
    StreamOptions,
)

MODEL_RATE_HZ = 11_025
HOP_MS = 1000 * 128 / MODEL_RATE_HZ


@pytest.mark.parametrize(
    ("lookahead_ms", "hops"),
    [(1, 4), (100, 8), (200, 17), (1e308, 32)],
)
def test_lookahead_in_hops(lookahead_ms: float, hops: int) -> None:
    assert StreamOptions(lookahead_ms=lookahead_ms).lookahead_hops(MODEL_RATE_HZ) == hops


@pytest.mark.parametrize("hops", [4, 17, 31])
def test_the_stated_lookahead_asked_for_again_is_the_same(hops: int) -> None:
    stated_ms = round(hops * HOP_MS, 3)  # as `ready` does
    assert StreamOptions(lookahead_ms=stated_ms).lookahead_hops(MODEL_RATE_HZ) == hops


def test_centre_mode_fixes_lookahead_and_block() -> None:
    options = StreamOptions(mode=Mode.CENTRE, lookahead_ms=50, block_frames=8)
    assert options.lookahead_hops(MODEL_RATE_HZ) == 32
    assert options.actual_lookahead_ms(MODEL_RATE_HZ) == pytest.approx(32 * HOP_MS)
    assert options.frames_per_window == 1


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"mode": "middle"}, OptionsError),
        ({"lookahead_ms": 0}, OptionsError),
        ({"lookahead_ms": float("nan")}, OptionsError),
        ({"lookahead_ms": "100"}, OptionsError),
        ({"block_frames": 0}, OptionsError),
        ({"block_frames": 33}, OptionsError),
        ({"block_frames": True}, OptionsError),
    ],
)
def test_impossible_streams_are_refused(values: dict[str, Any], error: type[OptionsError]) -> None:
    with pytest.raises(error, match="must be") as caught:
        StreamOptions(**values)
    assert caught.value.code == "bad_start"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"encoding": "mp3"}, OptionsError),
        ({"sample_rate_hz": 7_999}, SampleRateError),
        ({"sample_rate_hz": 192_001}, SampleRateError),
        ({"channels": 3}, OptionsError),
    ],
)
def test_impossible_formats_are_refused(values: dict[str, Any], error: type[OptionsError]) -> None:
    with pytest.raises(error, match="must be"):
        AudioFormat(**{"encoding": "pcm_s16le", "sample_rate_hz": 44_100, "channels": 1, **values})
