"""Live notes in a terminal: what sounds now, what was played, how the connection is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clients.events import Connected, Disconnected, Event, Gap
from service.protocol.server_messages import NoteOff, NoteOn

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
REFRESHES_PER_S = 15
REMEMBERED_NOTES = 12
METER_CELLS = 40
METER_FLOOR_DB = -60.0
CLIPPING_DB = -0.5
TOO_LATE_S = 2.0  # age from which on notes are not played, and the lateness is told


def note_name(pitch: int) -> str:
    """Name of a MIDI pitch; 60 is C4."""
    return f"{PITCH_CLASSES[pitch % 12]}{pitch // 12 - 1}"


class Terminal:
    """Shows a live transcription; prints one line per note if the output is not a terminal."""

    def __init__(
        self,
        console: Console,
        device: str,
        sample_rate: int,
        level_db: Callable[[], float],
        behind_s: Callable[[], float],
    ) -> None:
        """device: name of the input; level_db: returns its level, in dB of full scale; behind_s:
        returns the audio that is not yet transcribed."""
        self._console = console
        self._device = device
        self._sample_rate = sample_rate
        self._level_db = level_db
        self._status = Text("connecting ...", style="yellow")
        self._behind_s = behind_s
        self._sounding: dict[int, NoteOn] = {}  # by note_id
        self._played: deque[tuple[NoteOn, float]] = deque(maxlen=REMEMBERED_NOTES)  # with the end
        self.notes = 0
        # Files and pipes cannot be redrawn.
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

    def event(self, event: Event) -> None:
        match event:
            case Connected(ready=ready):
                delay = f"delay {ready.delay_ms:.0f} ms"
                if ready.median_delay_ms:
                    delay = f"delay {ready.median_delay_ms:.0f} ms, at most {ready.delay_ms:.0f} ms"
                self._say(f"listening to {self._device}, model {ready.model}, {delay}", "green")
            case Disconnected(error=error, retry_s=retry_s):
                self._say(f"{error}; retrying in {retry_s:.1f} s", "red")
            case Gap():
                lost_s = event.lost_samples / self._sample_rate
                self._say(f"{lost_s:.1f} s of audio were lost", "red")
            case NoteOn():
                self.notes += 1
                self._sounding[event.note_id] = event
            case NoteOff() if event.note_id in self._sounding:
                on = self._sounding.pop(event.note_id)
                self._played.appendleft((on, event.time_s))
                if self._live is None:
                    self._console.print(_line(on, event.time_s), highlight=False, soft_wrap=True)

    def _say(self, text: str, style: str) -> None:
        self._status = Text(text, style=style)
        if self._live is None:
            self._console.print(self._status, soft_wrap=True)

    def render(self) -> RenderableType:
        """The picture; a thread of Live draws it while events arrive, hence the copies."""
        table = Table.grid(padding=(0, 2))
        for on, offset_s in list(self._played):
            table.add_row(
                f"{on.time_s:8.2f} s",
                f"{note_name(on.pitch):4}",
                f"{offset_s - on.time_s:5.2f} s",
                Text("▮" * max(1, on.velocity // 8), style="cyan"),
            )
        sounding = sorted({on.pitch for on in list(self._sounding.values())})
        status = self._status.copy()
        if (behind_s := self._behind_s()) > TOO_LATE_S:
            status.append(f", {behind_s:.0f} s late", style="yellow")
        names = Text(" ".join(map(note_name, sounding)) or "-", style="bold green")
        return Group(status, _meter(self._level_db()), names, table)


def _line(note: NoteOn, offset_s: float) -> str:
    return (
        f"{note.time_s:8.2f} s  {note_name(note.pitch):4} {offset_s - note.time_s:5.2f} s  "
        f"velocity {note.velocity}"
    )


def _meter(level_db: float) -> Text:
    """A bar from METER_FLOOR_DB to full scale."""
    filled = round(METER_CELLS * max(0.0, 1 - level_db / METER_FLOOR_DB))
    style = "red" if level_db > CLIPPING_DB else "green"
    text = Text("▮" * filled, style=style)
    text.append("▯" * (METER_CELLS - filled), style="dim")
    return text.append(f" {level_db:4.0f} dB" if level_db > METER_FLOOR_DB else " silence")
