"""Options of a stream: derived numbers and refusals."""

import pytest

from service.protocol.options import Mode, StreamOptions

MODEL_RATE_HZ = 11_025
HOP_MS = 1000 * 128 / MODEL_RATE_HZ


@pytest.mark.parametrize(
    ("lookahead_ms", "hops"),
    # What `ready` states, to the microsecond, gives the same hops again.
    [(1, 4), (100, 8), (200, 17), (1e308, 32), *((round(n * HOP_MS, 3), n) for n in range(4, 33))],
)
def test_lookahead_in_hops(lookahead_ms: float, hops: int) -> None:
    assert StreamOptions(lookahead_ms=lookahead_ms).lookahead_hops(MODEL_RATE_HZ) == hops


def test_a_block_too_long_for_its_mode_is_refused() -> None:
    assert StreamOptions(mode=Mode.ANYTIME, block_frames=8).frames_per_window == 8
    with pytest.raises(ValueError, match="block_frames must be from 1 to 8, not 9"):
        StreamOptions(mode=Mode.ANYTIME, block_frames=9)
