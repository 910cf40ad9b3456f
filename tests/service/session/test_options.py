"""Options of a stream: derived numbers and refusals."""

from typing import Any

import pytest

from service.session.options import (
    AudioFormat,
    BlockFramesError,
    ChannelsError,
    Encoding,
    LookaheadError,
    Mode,
    ModeError,
    OptionsError,
    SampleRateError,
    StreamOptions,
    UnsupportedEncodingError,
    stated_delay,
)

MODEL_RATE_HZ = 11_025
HOP_MS = 1000 * 128 / MODEL_RATE_HZ


@pytest.mark.parametrize(
    ("lookahead_ms", "hops"),
    [(1, 4), (50, 4), (100, 8), (200, 17), (372, 32), (10_000, 32), (1e308, 32)],
)
def test_lookahead_in_hops(lookahead_ms: float, hops: int) -> None:
    assert StreamOptions(lookahead_ms=lookahead_ms).lookahead_hops(MODEL_RATE_HZ) == hops


@pytest.mark.parametrize("hops", range(4, 33))
def test_the_stated_lookahead_asked_for_again_is_the_same(hops: int) -> None:
    stated_ms = round(hops * HOP_MS, 3)  # as `ready` does
    assert StreamOptions(lookahead_ms=stated_ms).lookahead_hops(MODEL_RATE_HZ) == hops


def test_centre_mode_fixes_lookahead_and_block() -> None:
    options = StreamOptions(mode=Mode.CENTRE, lookahead_ms=50, block_frames=8)
    assert options.lookahead_hops(MODEL_RATE_HZ) == 32
    assert options.actual_lookahead_ms(MODEL_RATE_HZ) == pytest.approx(32 * HOP_MS)
    assert options.frames_per_window == 1


def test_the_delay_is_the_sum_of_its_parts() -> None:
    delay = stated_delay(
        StreamOptions(lookahead_ms=100, block_frames=4),
        model_rate_hz=MODEL_RATE_HZ,
        resampler_ms=45.0,
        tracker_on_frames=2.5,
        tracker_off_frames=5,
    )
    assert delay.lookahead_ms == pytest.approx(8 * HOP_MS)
    assert delay.block_ms == pytest.approx(3 * HOP_MS)
    assert delay.tracker_on_ms == pytest.approx(2.5 * HOP_MS)
    assert delay.note_on_ms == pytest.approx(45 + 13.5 * HOP_MS)
    assert delay.note_off_ms == pytest.approx(45 + 16 * HOP_MS)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"mode": "middle"}, ModeError),
        ({"lookahead_ms": 0}, LookaheadError),
        ({"lookahead_ms": float("nan")}, LookaheadError),
        ({"lookahead_ms": float("inf")}, LookaheadError),
        ({"lookahead_ms": "100"}, LookaheadError),
        ({"block_frames": 0}, BlockFramesError),
        ({"block_frames": 33}, BlockFramesError),
        ({"block_frames": 2.0}, BlockFramesError),
        ({"block_frames": True}, BlockFramesError),
    ],
)
def test_impossible_streams_are_refused(values: dict[str, Any], error: type[OptionsError]) -> None:
    with pytest.raises(error, match="must be") as caught:
        StreamOptions(**values)
    assert caught.value.code == "bad_start"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"encoding": "mp3"}, UnsupportedEncodingError),
        ({"sample_rate_hz": 7_999}, SampleRateError),
        ({"sample_rate_hz": 192_001}, SampleRateError),
        ({"sample_rate_hz": 44_100.0}, SampleRateError),
        ({"channels": 0}, ChannelsError),
        ({"channels": 3}, ChannelsError),
    ],
)
def test_impossible_formats_are_refused(values: dict[str, Any], error: type[OptionsError]) -> None:
    with pytest.raises(error, match="must be"):
        AudioFormat(**{"encoding": "pcm_s16le", "sample_rate_hz": 44_100, "channels": 1, **values})


def test_words_are_taken_for_their_enums() -> None:
    audio = AudioFormat(encoding="pcm_f32le", sample_rate_hz=48_000, channels=2)  # type: ignore[arg-type]
    assert audio.encoding is Encoding.PCM_F32LE
    assert audio.duration_ms(48_000 * 8) == 1000
    assert StreamOptions(mode="centre").mode is Mode.CENTRE  # type: ignore[arg-type]
