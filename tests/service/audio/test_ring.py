"""The ring against the plain array that it stands for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.audio.ring import SampleRing


@given(
    window=st.integers(1, 40),
    slack=st.integers(0, 40),
    chunks=st.lists(st.integers(0, 100), max_size=20),
)
def test_the_latest_window_equals_the_end_of_the_stream(
    window: int, slack: int, chunks: list[int]
) -> None:
    ring = SampleRing(window, slack)
    stream = np.zeros(window + slack, np.float32)  # what lies before sample 0
    before = len(stream)
    for chunk in chunks:
        new = np.arange(1, min(chunk, window + slack) + 1, dtype=np.float32) + ring.written
        ring.write(new)
        stream = np.concatenate([stream, new])
        assert ring.written == len(stream) - before
        np.testing.assert_array_equal(ring.window(), stream[-window:])


def test_a_window_survives_the_slack() -> None:
    ring = SampleRing(window=8, slack=4)
    ring.write(np.arange(10, dtype=np.float32))
    window = ring.window()
    ring.write(np.full(4, -1, np.float32))
    np.testing.assert_array_equal(window, np.arange(2, 10))
