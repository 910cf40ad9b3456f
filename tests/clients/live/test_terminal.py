"""The terminal's picture of live notes, and the lines printed where there is none."""

import io

import pytest
from rich.console import Console

from clients.errors import ConnectionLostError
from clients.events import Disconnected, Event, Gap
from clients.live.terminal import REMEMBERED_NOTES, Terminal
from tests.clients.fakes.events import off, on


def terminal_to(console: Console, *events: Event, level_db: float = -12.0) -> Terminal:
    terminal = Terminal(console, "Piano Mic", 48_000, lambda: level_db, lambda: 2.5)
    for event in events:
        terminal.event(event)
    return terminal


def drawn(*events: Event, level_db: float = -12.0) -> list[str]:
    """The lines of the picture: status, level, what sounds, what was played."""
    console = Console(file=io.StringIO(), force_terminal=True)
    out = io.StringIO()
    terminal = terminal_to(console, *events, level_db=level_db)
    Console(file=out, width=100).print(terminal.render())
    assert terminal.notes == len({event.note_id for event in events if hasattr(event, "note_id")})
    return [line.strip() for line in out.getvalue().rstrip().splitlines()]


def test_sounding_and_played_notes_are_shown() -> None:
    assert drawn(on(0, 60, 1.0), on(1, 64))[2:] == ["C4 E4"]
    _, _, sounding, played = drawn(on(0, 60, 1.0), on(1, 64), off(0, 60))
    assert sounding == "E4"
    assert played.split()[:5] == ["1.00", "s", "C4", "1.50", "s"]
    ended = [event for number in range(50) for event in (on(number, 60), off(number, 60))]
    assert len(drawn(*ended)) == 3 + REMEMBERED_NOTES


def test_lag_and_loss_are_shown() -> None:
    lost = Disconnected(error=ConnectionLostError("it broke"), retry_s=2.0)
    assert "it broke; retrying in 2.0 s, 2 s late" in drawn(lost)[0]
    gap = Gap(lost_samples=72_000, time_s=9.0)
    assert "1.5 s of audio were lost" in drawn(lost, gap)[0]


@pytest.mark.parametrize(
    ("level_db", "filled", "words"), [(0.0, 40, "0 dB"), (-90.3, 0, "silence")]
)
def test_the_level_of_the_input_is_shown(level_db: float, filled: int, words: str) -> None:
    meter = drawn(level_db=level_db)[1]
    assert meter.count("▮") == filled
    assert words in meter


def test_a_pipe_gets_a_line_a_note() -> None:
    out = io.StringIO()
    with terminal_to(Console(file=out)) as terminal:
        terminal.event(on(0, 70, 1.0))
        terminal.event(off(0, 70))
    assert out.getvalue().split() == ["1.00", "s", "A#4", "1.50", "s", "velocity", "80"]
