"""A short soak of a server with a model of pure tones; the judgement of a long one."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import machine
from tests.benchmarks.soak import LOOKS, Look, complaints, soak
from tests.fakes import play
from tests.service.servers import TONES, server_starter

FLAT = [Look(60.0 * n, 6.0 * n, 900.0, 400.0, 20, 12) for n in range(1, LOOKS + 1)]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"memory_mb": 500.0}, "memory"),
        ({"files": 40}, "files"),
        ({"threads": 40}, "threads"),
        ({"behind_ms": 9_000.0}, "behind"),
    ],
)
def test_growth_is_reported(change: dict[str, float], word: str) -> None:
    (complaint,) = complaints([*FLAT[:-1], replace(FLAT[-1], **change)])  # type: ignore[arg-type]
    assert word in complaint


async def test_a_quarter_of_a_minute_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    notes = [(pitch, 0.1 + n, 0.6 + n) for n, pitch in enumerate([57, 69, 81, 93] * 3)]
    pcm = (play(notes, 12.0, machine.RATE_HZ) * 32767).astype("<i2")
    with server_starter(tmp_path) as start:
        looks = await soak(start(*TONES), pcm, 15.0, count=10)
    assert complaints(looks) == []
    assert looks[-1].audio_s >= 15.0
