"""Tests of the buffer of the latest samples of a stream."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.stream.windows import SampleBuffer


@given(first=st.integers(0, 50), history=st.integers(1, 40), sizes=st.lists(st.integers(0, 30)))
def test_chunks_do_not_change_windows(first: int, history: int, sizes: list[int]) -> None:
    samples = np.arange(1, 1 + sum(sizes), dtype=np.float32)
    padded = np.concatenate([np.zeros(history, np.float32), samples])  # starts at first - history
    buffer, done, advanced = SampleBuffer(first, history), 0, [np.zeros(0, np.float32)]
    for size in sizes:
        buffer.append(samples[done : done + size])
        done += size
        assert buffer.end == first + done
        advanced.append(buffer.advance(buffer.end).copy())
        window = buffer.between(buffer.end - history, buffer.end)
        np.testing.assert_array_equal(window, padded[done : done + history])
    np.testing.assert_array_equal(np.concatenate(advanced), samples)
