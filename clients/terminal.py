"""Live notes in a terminal: what sounds now, what was played, how the connection is."""

from __future__ import annotations

from collections import deque

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clients.errors import TranscriptionError
from clients.protocol import Event, Lagging, NoteOff, NoteOn, Progress, Ready

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
REFRESHES_PER_S = 15
REMEMBERED_NOTES = 12


def note_name(pitch: int) -> str:
    """Name of a MIDI pitch; 60 is C4."""
    return f"{PITCH_CLASSES[pitch % 12]}{pitch // 12 - 1}"


class Terminal:
    """Shows a live transcription while it is entered; a line a note where nobody is watching.

    Implements ``clients.live.Listener``.
    """

    def __init__(self, console: Console, device: str) -> None:
        self._console = console
        self._device = device
        self._status = Text("connecting ...", style="yellow")
        self._behind_ms = 0.0
        self._sounding: dict[int, NoteOn] = {}
        self._recent: deque[tuple[NoteOn, float | None]] = deque(maxlen=REMEMBERED_NOTES)
        self.notes = 0
        # Redrawing makes no sense of a file or a pipe.
        self._live = (
            Live(get_renderable=self.render, console=console, refresh_per_second=REFRESHES_PER_S)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Terminal:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    # -- what is told ----------------------------------------------------------------------------

    def connected(self, ready: Ready) -> None:
        text = f"listening to {self._device}, model {ready.model}, delay {ready.delay_ms:.0f} ms"
        self._say(text, "green")

    def disconnected(self, error: TranscriptionError, retry_s: float) -> None:
        self._say(f"{error}; again in {retry_s:.1f} s", "red")

    def event(self, event: Event) -> None:
        match event:
            case NoteOn():
                self.notes += 1
                self._sounding[event.note_id] = event
                self._recent.append((event, None))
            case NoteOff():
                self._ended(event)
            case Progress() | Lagging():
                self._behind_ms = event.behind_ms

    def _ended(self, off: NoteOff) -> None:
        on = self._sounding.pop(off.note_id, None)
        if on is None:
            return
        for place, (note, _) in enumerate(self._recent):
            if note.note_id == off.note_id:
                self._recent[place] = (note, off.time_s)
        if self._live is None:
            self._console.print(_line(on, off.time_s), highlight=False, soft_wrap=True)

    def _say(self, text: str, style: str) -> None:
        self._status = Text(text, style=style)
        if self._live is None:
            self._console.print(self._status, soft_wrap=True)

    # -- what is shown ---------------------------------------------------------------------------

    def render(self) -> RenderableType:
        """The whole display."""
        names = [note_name(pitch) for pitch in sorted({on.pitch for on in self._sounding.values()})]
        table = Table.grid(padding=(0, 2))
        for note, offset_s in reversed(self._recent):
            table.add_row(
                f"{note.time_s:8.2f} s",
                Text(f"{note_name(note.pitch):4}", style="bold" if offset_s is None else ""),
                "" if offset_s is None else f"{offset_s - note.time_s:5.2f} s",
                Text("▮" * max(1, note.velocity // 8), style="cyan"),
            )
        status = self._status.copy()
        if self._behind_ms >= 1000:
            status.append(f", {self._behind_ms / 1000:.1f} s behind", style="yellow")
        return Group(status, Text(" ".join(names) or "-", style="bold green"), table)


def _line(note: NoteOn, offset_s: float) -> str:
    return (
        f"{note.time_s:8.2f} s  {note_name(note.pitch):4} {offset_s - note.time_s:5.2f} s  "
        f"velocity {note.velocity}"
    )
