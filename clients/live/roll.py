"""The last seconds of notes as a picture of characters, time from left to right."""

from dataclasses import dataclass

from rich.text import Text

from service.protocol.server_messages import NoteOff, NoteOn, Progress

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
