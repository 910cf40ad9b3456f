"""The backlog: addressed by sample, bounded, nothing lost or doubled within its bound."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.connection.backlog import Backlog


def numbered(start: int, count: int) -> bytes:
    return b"".join((start + i).to_bytes(2, "little") for i in range(count))


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 100))
def test_reading_on_gives_the_audio_once_and_in_order(sizes: list[int], start: int) -> None:
    async def run() -> tuple[bytes, int]:
        backlog = Backlog(2, max_samples=10_000)
        for size in sizes:
            backlog.put(numbered(backlog.end, size))
        backlog.finish()
        position, heard = min(start, backlog.end), b""
        first = position
        while (pcm := await backlog.read(position)) is not None:
            heard += pcm
            position += len(pcm) // 2
        return heard, first

    heard, first = asyncio.run(run())
    assert heard == numbered(first, max(0, sum(sizes) - first))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=50), st.integers(1, 100))
def test_the_oldest_is_dropped_beyond_the_bound(sizes: list[int], max_samples: int) -> None:
    async def run() -> None:
        backlog = Backlog(2, max_samples)
        for size in sizes:
            backlog.put(numbered(backlog.end, size))
            assert backlog.end - backlog.start <= max_samples
        assert backlog.end == sum(sizes)
        if backlog.start:
            with pytest.raises(LookupError, match="dropped"):
                await backlog.read(backlog.start - 1)
        if backlog.start < backlog.end:
            pcm = await backlog.read(backlog.start)
            assert pcm is not None
            assert pcm[:2] == numbered(backlog.start, 1)

    asyncio.run(run())
