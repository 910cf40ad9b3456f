"""The terminal's picture of live notes, and the lines printed where there is none."""

import io
import sys
import threading

import pytest
from rich.console import Console

from clients.errors import ConnectionLostError
from clients.events import Disconnected, Gap
from clients.live.terminal import MARGIN, MAX_ROWS, REMEMBERED_NOTES, Roll, Terminal, note_name
from service.protocol.client_messages import Checkpoint
from service.protocol.server_messages import Progress
from tests.clients.fakes.events import off, on


def rows(roll: Roll, columns: int) -> dict[str, str]:
    lines = roll.render(MARGIN + columns).plain.splitlines()
    return {line[:MARGIN].strip(): line[MARGIN:] for line in lines}


@pytest.mark.parametrize(("pitch", "name"), [(60, "C4"), (69, "A4"), (21, "A0"), (1, "C#-1")])
def test_notes_have_names(pitch: int, name: str) -> None:
    assert note_name(pitch) == name


def test_notes_lie_at_their_times_and_grow_while_they_sound() -> None:
    roll = Roll()
    for event in (on(0, 60, 0.2), off(0, 60, 0.5), on(1, 64, 0.6), on(2, 60, 1.0)):
        roll.event(event)
    assert rows(roll, 10) == {"E4": "      █▬▬▬", "C4": "  █▬▬     "}
    roll.event(off(2, 60, 1.3))
    assert rows(roll, 10) == {"E4": "   █▬▬▬▬▬▬", "C4": "▬▬     █▬▬"}


def test_what_has_left_the_picture_is_forgotten() -> None:
    roll = Roll()
    for event in (on(0, 60, 0.0), off(0, 60, 0.5), on(1, 62, 5.0), off(1, 62, 5.2)):
        roll.event(event)
    assert list(rows(roll, 10)) == ["D4"]
    roll.event(on(2, 64, 100.0))
    assert list(rows(roll, 1_000)) == ["E4", "D4"]  # the first was drawn for the last time


def test_there_is_a_limit_to_its_rows() -> None:
    roll = Roll()
    for pitch in range(100):
        roll.event(on(pitch, pitch, 0.0))
    roll.event(off(0, 0, 1.0))
    shown = rows(roll, 10)
    assert len(shown) == MAX_ROWS
    assert next(iter(shown)) == note_name(99)


def terminal_on(console: Console, level_db: float = -12.0) -> Terminal:
    return Terminal(console, "Piano Mic", 48_000, lambda: level_db)


def shown(terminal: Terminal) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(terminal.render())
    return out.getvalue()


def test_sounding_and_played_notes_are_shown() -> None:
    terminal = terminal_on(Console(file=io.StringIO(), force_terminal=True))
    terminal.event(on(0, 60, 1.0))
    terminal.event(on(1, 64))
    assert "C4 E4" in shown(terminal)
    terminal.event(off(0, 60))
    assert "C4 E4" not in shown(terminal)
    assert "1.50 s" in shown(terminal)
    for note_id in range(2, 50):
        terminal.event(on(note_id, 40))
    assert len(shown(terminal).splitlines()) == REMEMBERED_NOTES + 6  # of three pitches
    assert terminal.notes == 50


def test_events_may_arrive_while_a_picture_is_drawn() -> None:
    terminal = terminal_on(Console(file=io.StringIO(), width=400))
    drawn: list[object] = []
    over = threading.Event()

    def draw() -> None:
        while not over.is_set():
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
    terminal = terminal_on(Console(file=io.StringIO()))
    nowhere = Checkpoint(session_id="0a", from_sample=0, frames=0, notes=0, sounding=())
    progress = Progress(
        received_samples=0, frames=0, time_s=0.0, behind_ms=2_500.0, checkpoint=nowhere
    )
    terminal.event(progress)
    terminal.event(Disconnected(error=ConnectionLostError("it broke"), retry_s=2.0))
    assert "it broke; retrying in 2.0 s, 2.5 s behind" in shown(terminal)
    terminal.event(Gap(lost_samples=72_000, time_s=9.0))
    assert "1.5 s of audio were lost" in shown(terminal)


@pytest.mark.parametrize(
    ("level_db", "filled", "words"), [(0.0, 40, "0 dB"), (-90.3, 0, "silence")]
)
def test_the_level_of_the_input_is_shown(level_db: float, filled: int, words: str) -> None:
    meter = shown(terminal_on(Console(file=io.StringIO()), level_db)).splitlines()[1]
    assert meter.count("▮") == filled
    assert words in meter


def test_a_pipe_gets_a_line_a_note() -> None:
    out = io.StringIO()
    with terminal_on(Console(file=out)) as terminal:
        terminal.event(on(0, 69, 1.0))
        terminal.event(off(0, 69))
    assert out.getvalue().split() == ["1.00", "s", "A4", "1.50", "s", "velocity", "80"]
