"""Tests of the live display in a terminal, and of the plain lines without a terminal."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from clients.events import ConnectionLostError, Disconnected, Event, Gap
from clients.terminal import Terminal
from tests.clients.fake_devices import note_off, note_on


def terminal_to(console: Console, *events: Event, level_db: float = -12.0) -> Terminal:
    microphone: Any = SimpleNamespace(name="Piano Mic", sample_rate=48_000, level_db=level_db)
    client: Any = SimpleNamespace(behind_s=2.5)
    terminal = Terminal(console, microphone, client)
    for event in events:
        terminal.handle(event)
    return terminal


def render(*events: Event, level_db: float = -12.0) -> list[str]:
    """Return the lines of the display: status, level, sounding notes."""
    console = Console(file=io.StringIO(), force_terminal=True)
    out = io.StringIO()
    terminal = terminal_to(console, *events, level_db=level_db)
    Console(file=out, width=100).print(terminal.get_renderable())
    return [line.strip() for line in out.getvalue().rstrip().splitlines()]


def test_the_display_shows_notes_lag_and_losses() -> None:
    assert (
        render(note_on(0, 60, 1.0), note_on(1, 64), note_off(1, 64), note_on(2, 70))[2] == "C4 A#4"
    )
    disconnected = Disconnected(error=ConnectionLostError("it broke"), retry_s=2.0)
    assert "it broke; retrying in 2.0 s, 2 s late" in render(disconnected)[0]
    gap = Gap(lost_samples=72_000, time_s=9.0)
    assert "1.5 s of audio lost" in render(disconnected, gap)[0]


@pytest.mark.parametrize(
    ("level_db", "filled", "label"), [(0.0, 40, "0 dB"), (-90.3, 0, "silence")]
)
def test_the_display_shows_the_input_level(level_db: float, filled: int, label: str) -> None:
    meter = render(level_db=level_db)[1]
    assert meter.count("▮") == filled
    assert label in meter


@pytest.mark.parametrize("is_terminal", [True, False])
def test_each_completed_note_is_one_line(is_terminal: bool) -> None:
    out = io.StringIO()
    with terminal_to(Console(file=out, force_terminal=is_terminal)) as terminal:
        terminal.handle(note_on(0, 70, 1.0))
        terminal.handle(note_off(0, 70))
    assert terminal.notes == 1
    assert "1.00 s  A#4   1.50 s  velocity 80\n" in out.getvalue()
    assert is_terminal or out.getvalue().count("\n") == 1
