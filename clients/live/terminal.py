"""Live notes in a terminal: what sounds now, what was played, how the connection is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clients.events import Connected, Disconnected, Event, Gap
from service.protocol.server_messages import Lagging, NoteOff, NoteOn, Progress

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
COLUMN_S = 0.1
MAX_ROWS = 24
MARGIN = 5  # characters for a note's name


def note_name(pitch: int) -> str:
    """Name of a MIDI pitch; 60 is C4."""
    return f"{PITCH_CLASSES[pitch % 12]}{pitch // 12 - 1}"


@dataclass(slots=True)
class _Bar:
    pitch: int
    begin_s: float
    end_s: float | None = None  # while it sounds


class Roll:
    """Follows events; draws what of them lies within the picture."""

    def __init__(self) -> None:
        self._bars: dict[int, _Bar] = {}  # by note_id, in the order of their beginnings
        self._now_s = 0.0

    def event(self, event: object) -> None:
        match event:
            case NoteOn():
                self._bars[event.note_id] = _Bar(event.pitch, event.time_s)
            case NoteOff() if event.note_id in self._bars:
                self._bars[event.note_id].end_s = event.time_s
        if isinstance(event, NoteOn | NoteOff | Progress):
            self._now_s = max(self._now_s, event.time_s)

    def render(self, width: int) -> Text:
        """The picture; a row for each pitch of the last seconds, the highest of them on top."""
        columns = max(1, width - MARGIN)
        first_s = self._now_s - columns * COLUMN_S
        for note_id, bar in list(self._bars.items()):
            if bar.end_s is not None and bar.end_s < first_s:
                del self._bars[note_id]
        rows: dict[int, list[str]] = {}
        for bar in self._bars.values():
            row = rows.setdefault(bar.pitch, [" "] * columns)
            begin = round((bar.begin_s - first_s) / COLUMN_S)
            end_s = self._now_s if bar.end_s is None else bar.end_s
            end = max(begin + 1, round((end_s - first_s) / COLUMN_S))
            for column in range(max(0, begin), min(columns, end)):
                row[column] = "█" if column == begin else "▬"
        shown = sorted(rows, reverse=True)[:MAX_ROWS]
        lines = [f"{note_name(pitch):{MARGIN}}" + "".join(rows[pitch]) for pitch in shown]
        return Text("\n".join(lines), style="cyan", no_wrap=True)


REFRESHES_PER_S = 15
REMEMBERED_NOTES = 12
METER_CELLS = 40
METER_FLOOR_DB = -60.0
CLIPPING_DB = -0.5


class Terminal:
    """Shows a live transcription; prints one line per note if the output is not a terminal."""

    def __init__(
        self, console: Console, device: str, sample_rate: int, level_db: Callable[[], float]
    ) -> None:
        """device: name of the input; level_db: returns its level, in dB of full scale."""
        self._console = console
        self._device = device
        self._sample_rate = sample_rate
        self._level_db = level_db
        self._roll = Roll()
        self._status = Text("connecting ...", style="yellow")
        self._behind_ms = 0.0
        self._sounding: dict[int, NoteOn] = {}
        self._recent: deque[tuple[NoteOn, float | None]] = deque(maxlen=REMEMBERED_NOTES)
        self.notes = 0
        self._drawing = threading.Lock()  # a thread of Live draws while events arrive
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

    # -- events ----------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        with self._drawing:
            self._follow(event)

    def _follow(self, event: Event) -> None:
        if self._live is not None:  # what nobody draws would be kept for ever
            self._roll.event(event)
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
        with self._drawing:
            return self._picture()

    def _picture(self) -> RenderableType:
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
        return Group(
            status,
            _meter(self._level_db()),
            self._roll.render(self._console.width),
            Text(" ".join(names) or "-", style="bold green"),
            table,
        )


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
