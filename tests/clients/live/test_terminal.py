"""The terminal's picture of live notes, and the lines printed where there is none."""

import io
import sys
import threading
from itertools import takewhile

import pytest
from rich.console import Console

from clients.errors import ConnectionLostError
from clients.events import Disconnected, Event, Gap
from clients.live.terminal import MARGIN, MAX_ROWS, REMEMBERED_NOTES, Terminal, note_name
from tests.clients.fakes.events import off, on


def terminal_to(console: Console, level_db: float = -12.0, behind_s: float = 0.0) -> Terminal:
    return Terminal(console, "Piano Mic", 48_000, lambda: level_db, lambda: behind_s)


def terminal_on(columns: int, *events: Event, behind_s: float = 0.0) -> Terminal:
    """One whose roll has this many columns."""
    console = Console(file=io.StringIO(), force_terminal=True, width=MARGIN + columns)
    terminal = terminal_to(console, behind_s=behind_s)
    for event in events:
        terminal.event(event)
    return terminal


def shown(terminal: Terminal) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(terminal.render())
    return out.getvalue()


def rows(terminal: Terminal) -> dict[str, str]:
    """The roll."""
    lines = takewhile(lambda line: "▬" in line or "█" in line, shown(terminal).splitlines()[2:])
    return {line[:MARGIN].strip(): line[MARGIN:] for line in lines}


def test_notes_lie_at_their_times_and_grow_while_they_sound() -> None:
    terminal = terminal_on(10, on(0, 60, 0.2), off(0, 60, 0.5), on(1, 64, 0.6), on(2, 60, 1.0))
    assert rows(terminal) == {"E4": "      █▬▬▬", "C4": "  █▬▬     "}
    terminal.event(off(2, 60, 1.3))
    assert rows(terminal) == {"E4": "   █▬▬▬▬▬▬", "C4": "▬▬     █▬▬"}


def test_the_roll_has_the_highest_notes_of_the_last_seconds() -> None:
    terminal = terminal_on(10, on(0, 99, 0.0), off(0, 99, 0.5))
    for pitch in range(98):
        terminal.event(on(1 + pitch, pitch, 4.5))
    terminal.event(off(98, 97, 5.0))
    assert list(rows(terminal)) == [note_name(97 - row) for row in range(MAX_ROWS)]


def test_sounding_and_played_notes_are_shown() -> None:
    terminal = terminal_on(75, on(0, 60, 1.0), on(1, 64))
    assert "C4 E4" in shown(terminal)
    terminal.event(off(0, 60))
    assert "C4 E4" not in shown(terminal)
    assert "1.50 s" in shown(terminal)
    for note_id in range(2, 50):
        terminal.event(on(note_id, 40))
    assert len(shown(terminal).splitlines()) == REMEMBERED_NOTES + 6  # of three pitches
    assert terminal.notes == 50


def test_events_may_arrive_while_a_picture_is_drawn() -> None:
    terminal = terminal_on(395)
    drawn: list[object] = []
    over = threading.Event()

    def draw() -> None:
        while not over.wait(1e-3):
            drawn.append(terminal.render())
        drawn.append("whole")

    interval_s = sys.getswitchinterval()
    thread = threading.Thread(target=draw)
    try:
        sys.setswitchinterval(1e-5)
        thread.start()
        for number in range(2_000):
            terminal.event(on(number, number % 100, number / 100))
            if number >= 20:
                terminal.event(off(number - 20, (number - 20) % 100, number / 100))
    finally:
        sys.setswitchinterval(interval_s)
        over.set()
        thread.join()
    assert drawn[-1] == "whole"


def test_lag_and_loss_are_shown() -> None:
    terminal = terminal_on(75, behind_s=2.5)
    terminal.event(Disconnected(error=ConnectionLostError("it broke"), retry_s=2.0))
    assert "it broke; retrying in 2.0 s, 2 s late" in shown(terminal)
    terminal.event(Gap(lost_samples=72_000, time_s=9.0))
    assert "1.5 s of audio were lost" in shown(terminal)


@pytest.mark.parametrize(
    ("level_db", "filled", "words"), [(0.0, 40, "0 dB"), (-90.3, 0, "silence")]
)
def test_the_level_of_the_input_is_shown(level_db: float, filled: int, words: str) -> None:
    meter = shown(terminal_to(Console(), level_db)).splitlines()[1]
    assert meter.count("▮") == filled
    assert words in meter


def test_a_pipe_gets_a_line_a_note() -> None:
    out = io.StringIO()
    with terminal_to(Console(file=out)) as terminal:
        terminal.event(on(0, 70, 1.0))
        terminal.event(off(0, 70))
    assert out.getvalue().split() == ["1.00", "s", "A#4", "1.50", "s", "velocity", "80"]
