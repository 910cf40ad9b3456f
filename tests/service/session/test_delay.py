"""The stated delay of events."""

import pytest

from service.protocol.options import StreamOptions
from service.session.delay import stated_delay

MODEL_RATE_HZ = 11_025
HOP_MS = 1000 * 128 / MODEL_RATE_HZ


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
