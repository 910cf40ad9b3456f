"""The picture of live notes in a terminal, and the lines printed where there is none."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from clients.events import ConnectionLostError, Disconnected, Event, Gap
from clients.terminal import Terminal
from tests.clients.fake_devices import off, on


def terminal_to(console: Console, *events: Event, level_db: float = -12.0) -> Terminal:
    microphone: Any = SimpleNamespace(name="Piano Mic", sample_rate=48_000, level_db=level_db)
    client: Any = SimpleNamespace(behind_s=2.5)
    terminal = Terminal(console, microphone, client)
    for event in events:
        terminal.event(event)
    return terminal


def drawn(*events: Event, level_db: float = -12.0) -> list[str]:
    """The lines of the picture: status, level, what sounds."""
    console = Console(file=io.StringIO(), force_terminal=True)
    out = io.StringIO()
    terminal = terminal_to(console, *events, level_db=level_db)
    Console(file=out, width=100).print(terminal.get_renderable())
    return [line.strip() for line in out.getvalue().rstrip().splitlines()]


def test_what_sounds_lag_and_loss_are_shown() -> None:
    assert drawn(on(0, 60, 1.0), on(1, 64), off(1, 64), on(2, 70))[2] == "C4 A#4"
    lost = Disconnected(error=ConnectionLostError("it broke"), retry_s=2.0)
    assert "it broke; retrying in 2.0 s, 2 s late" in drawn(lost)[0]
    gap = Gap(lost_samples=72_000, time_s=9.0)
    assert "1.5 s of audio lost" in drawn(lost, gap)[0]


@pytest.mark.parametrize(
    ("level_db", "filled", "words"), [(0.0, 40, "0 dB"), (-90.3, 0, "silence")]
)
def test_the_level_of_the_input_is_shown(level_db: float, filled: int, words: str) -> None:
    meter = drawn(level_db=level_db)[1]
    assert meter.count("▮") == filled
    assert words in meter


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_note_that_was_played_is_a_line(is_terminal: bool) -> None:
    out = io.StringIO()
    with terminal_to(Console(file=out, force_terminal=is_terminal)) as terminal:
        terminal.event(on(0, 70, 1.0))
        terminal.event(off(0, 70))
    assert terminal.notes == 1
    assert "1.00 s  A#4   1.50 s  velocity 80\n" in out.getvalue()
    assert is_terminal or out.getvalue().count("\n") == 1
