"""What the terminal shows."""

import io

import pytest
from rich.console import Console

from clients.client import ConnectionLostError
from clients.protocol import NoteOff, NoteOn, Progress
from clients.terminal import REMEMBERED_NOTES, Terminal, note_name


def on(note_id: int, pitch: int, time_s: float = 1.0) -> NoteOn:
    return NoteOn(note_id=note_id, pitch=pitch, velocity=80, confidence=1.0, frame=0, time_s=time_s)


def off(note_id: int, pitch: int, time_s: float = 2.5) -> NoteOff:
    return NoteOff(note_id=note_id, pitch=pitch, frame=1, time_s=time_s)


def shown(terminal: Terminal) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(terminal.render())
    return out.getvalue()


@pytest.mark.parametrize(("pitch", "name"), [(60, "C4"), (69, "A4"), (21, "A0"), (1, "C#-1")])
def test_notes_have_names(pitch: int, name: str) -> None:
    assert note_name(pitch) == name


def test_sounding_and_played_notes_are_shown() -> None:
    terminal = Terminal(Console(file=io.StringIO()), "Piano Mic")
    terminal.event(on(0, 60))
    terminal.event(on(1, 64))
    assert "C4 E4" in shown(terminal)
    terminal.event(off(0, 60))
    assert "C4 E4" not in shown(terminal)
    assert "1.50 s" in shown(terminal)
    for note_id in range(2, 50):
        terminal.event(on(note_id, 40))
    assert len(shown(terminal).splitlines()) == REMEMBERED_NOTES + 2
    assert terminal.notes == 50


def test_lag_and_loss_are_shown() -> None:
    terminal = Terminal(Console(file=io.StringIO()), "Piano Mic")
    terminal.event(Progress(received_samples=0, frames=0, time_s=0.0, behind_ms=2_500.0))
    terminal.disconnected(ConnectionLostError("it broke"), 2.0)
    assert "it broke; again in 2.0 s, 2.5 s behind" in shown(terminal)


def test_a_pipe_gets_a_line_a_note() -> None:
    out = io.StringIO()
    with Terminal(Console(file=out), "Piano Mic") as terminal:
        terminal.event(on(0, 69))
        terminal.event(off(0, 69))
    assert out.getvalue().split() == ["1.00", "s", "A4", "1.50", "s", "velocity", "80"]


def test_a_terminal_is_redrawn() -> None:
    out = io.StringIO()
    with Terminal(Console(file=out, force_terminal=True), "Piano Mic") as terminal:
        terminal.event(on(0, 69))
    assert "A4" in out.getvalue()
