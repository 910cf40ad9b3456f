"""The backlog: addressed by sample, bounded, nothing lost or doubled within its bound."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.errors import ConnectionLostError
from clients.resumption.backlog import Backlog, Changes


def numbered(start: int, count: int) -> bytes:
    return b"".join((start + i).to_bytes(2, "little") for i in range(count))


@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    first=st.integers(0, 100),
    most=st.integers(1, 50),
    max_samples=st.integers(1, 1_000),
)
def test_audio_is_read_once_and_in_order_or_known_to_be_dropped(
    sizes: list[int], first: int, most: int, max_samples: int
) -> None:
    async def run() -> None:
        backlog = Backlog(2, max_samples, Changes())
        for size in sizes:
            backlog.put(numbered(backlog.end, size))
            assert backlog.end - backlog.start <= max_samples
        backlog.finish()
        assert backlog.end == sum(sizes)
        backlog.position = position = min(first, backlog.end)
        if position < min(backlog.start, backlog.end):
            with pytest.raises(ConnectionLostError, match="dropped"):
                await backlog.read(most)
            backlog.position = position = backlog.start
        heard = b""
        while (pcm := await backlog.read(most)) is not None:
            assert len(pcm) <= 2 * most
            heard += pcm
        assert heard == numbered(position, sum(sizes) - position)

    asyncio.run(run())
