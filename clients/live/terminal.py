"""Live notes in a terminal: what sounds now, what was played, how the connection is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clients.events import Connected, Disconnected, Event, Gap
from service.protocol.server_messages import NoteOff, NoteOn, Progress

PITCH_CLASSES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
COLUMN_S = 0.1
MAX_ROWS = 24
MARGIN = 5  # characters for a note's name
REFRESHES_PER_S = 15
REMEMBERED_NOTES = 12
METER_CELLS = 40
METER_FLOOR_DB = -60.0
CLIPPING_DB = -0.5
TOO_LATE_S = 2.0
"""Age from which on notes are not played, and the lateness is told."""


def note_name(pitch: int) -> str:
    """Name of a MIDI pitch; 60 is C4."""
    return f"{PITCH_CLASSES[pitch % 12]}{pitch // 12 - 1}"


@dataclass(slots=True)
class _Note:
    on: NoteOn
    offset_s: float | None = None  # while it sounds


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
        self._shown: dict[int, _Note] = {}  # by note_id, in the order of their beginnings
        self._now_s = 0.0
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
                self._shown[event.note_id] = _Note(event)
            case NoteOff() if event.note_id in self._shown:
                self._shown[event.note_id].offset_s = event.time_s
                if self._live is None:  # what nobody draws would be kept for ever
                    on = self._shown.pop(event.note_id).on
                    self._console.print(_line(on, event.time_s), highlight=False, soft_wrap=True)
        if isinstance(event, NoteOn | NoteOff | Progress):
            self._now_s = max(self._now_s, event.time_s)

    def late(self) -> None:
        """Say that notes come too late, if nothing is drawn."""
        if self._live is None:
            self._say(f"the notes come {self._behind_s():.0f} s late", "yellow")

    def _say(self, text: str, style: str) -> None:
        self._status = Text(text, style=style)
        if self._live is None:
            self._console.print(self._status, soft_wrap=True)

    # -- what is shown ---------------------------------------------------------------------------

    def render(self) -> RenderableType:
        with self._drawing:
            return self._picture()

    def _picture(self) -> RenderableType:
        columns = max(1, self._console.width - MARGIN)
        first_s = self._now_s - columns * COLUMN_S
        notes = list(self._shown.values())
        recent = notes[-REMEMBERED_NOTES:]
        drawn = [note for note in notes if note.offset_s is None or note.offset_s >= first_s]
        for note in notes[:-REMEMBERED_NOTES]:
            if note.offset_s is not None and note.offset_s < first_s:
                del self._shown[note.on.note_id]
        sounding = sorted({note.on.pitch for note in drawn if note.offset_s is None})
        table = Table.grid(padding=(0, 2))
        for note in reversed(recent):
            on, offset_s = note.on, note.offset_s
            table.add_row(
                f"{on.time_s:8.2f} s",
                Text(f"{note_name(on.pitch):4}", style="bold" if offset_s is None else ""),
                "" if offset_s is None else f"{offset_s - on.time_s:5.2f} s",
                Text("▮" * max(1, on.velocity // 8), style="cyan"),
            )
        status = self._status.copy()
        if (behind_s := self._behind_s()) > TOO_LATE_S:
            status.append(f", {behind_s:.0f} s late", style="yellow")
        return Group(
            status,
            _meter(self._level_db()),
            _roll(drawn, first_s, self._now_s, columns),
            Text(" ".join(map(note_name, sounding)) or "-", style="bold green"),
            table,
        )


def _roll(notes: Iterable[_Note], first_s: float, now_s: float, columns: int) -> Text:
    """Notes from ``first_s`` to now: a row for each pitch, the highest on top."""
    rows: dict[int, list[str]] = {}
    for note in notes:
        row = rows.setdefault(note.on.pitch, [" "] * columns)
        begin = round((note.on.time_s - first_s) / COLUMN_S)
        end_s = now_s if note.offset_s is None else note.offset_s
        end = max(begin + 1, round((end_s - first_s) / COLUMN_S))
        for column in range(max(0, begin), min(columns, end)):
            row[column] = "█" if column == begin else "▬"
    shown = sorted(rows, reverse=True)[:MAX_ROWS]
    lines = [f"{note_name(pitch):{MARGIN}}" + "".join(rows[pitch]) for pitch in shown]
    return Text("\n".join(lines), style="cyan", no_wrap=True)


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
