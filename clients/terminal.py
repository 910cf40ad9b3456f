"""Shows the connection, the input level and the notes of a live transcription in a terminal."""

from pretty_midi import note_number_to_name
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from clients.capture import Microphone
from clients.client import TranscriptionClient
from clients.events import Connected, Disconnected, Event, Gap
from service.protocol.server_messages import InputWarning, NoteOff, NoteOn

REFRESHES_PER_S = 15
METER_CELLS = 40
METER_FLOOR_DB = -60.0
CLIPPING_DB = -0.5
TOO_LATE_S = 2.0  # above this delay, notes are not played, and the display shows the delay


class Terminal(Live):
    """Display of a live transcription. To a pipe or file, it writes only lines of text."""

    def __init__(
        self, console: Console, microphone: Microphone, client: TranscriptionClient
    ) -> None:
        self._microphone = microphone
        self._client = client
        self._status = Text("connecting ...", style="yellow")
        self._sounding: dict[int, NoteOn] = {}  # by note_id
        self.notes = 0
        super().__init__(console=console, refresh_per_second=REFRESHES_PER_S)

    def handle(self, event: Event) -> None:
        match event:
            case Connected(ready=ready):
                delay = f"delay {ready.delay_ms:.0f} ms"
                if ready.median_delay_ms:
                    delay = f"delay {ready.median_delay_ms:.0f} ms, at most {ready.delay_ms:.0f} ms"
                device = self._microphone.name
                self._set_status(f"listening to {device}, model {ready.model}, {delay}", "green")
            case Disconnected(error=error, retry_s=retry_s):
                self._set_status(f"{error}; retrying in {retry_s:.1f} s", "red")
            case Gap():
                lost_s = event.lost_samples / self._microphone.sample_rate
                self._set_status(f"{lost_s:.1f} s of audio lost", "red")
            case InputWarning(message=message):
                self._set_status(message, "red")
            case NoteOn():
                self.notes += 1
                self._sounding[event.note_id] = event
            case NoteOff() if event.note_id in self._sounding:
                on = self._sounding.pop(event.note_id)
                name, length_s = note_number_to_name(on.pitch), event.time_s - on.time_s
                line = f"{on.time_s:8.2f} s  {name:4} {length_s:5.2f} s  velocity {on.velocity}"
                self.console.print(line, highlight=False, soft_wrap=True)

    def _set_status(self, text: str, style: str) -> None:
        self._status = Text(text, style=style)
        if not self.console.is_terminal:
            self.console.print(self._status, soft_wrap=True)

    def get_renderable(self) -> RenderableType:
        """Return the display below the lines of text. A thread calls this method while events
        arrive, so it copies the state."""
        if not self.console.is_terminal:
            return ""
        status = self._status.copy()
        if (behind_s := self._client.behind_s) > TOO_LATE_S:
            status.append(f", {behind_s:.0f} s late", style="yellow")
        sounding = sorted({on.pitch for on in list(self._sounding.values())})
        names = " ".join(map(note_number_to_name, sounding)) or "-"
        return Group(status, _meter(self._microphone.level_db), Text(names, style="bold green"))


def _meter(level_db: float) -> Text:
    """Return a bar that shows a level between METER_FLOOR_DB and full scale."""
    filled = round(METER_CELLS * max(0.0, 1 - level_db / METER_FLOOR_DB))
    style = "red" if level_db > CLIPPING_DB else "green"
    text = Text("▮" * filled, style=style)
    text.append("▯" * (METER_CELLS - filled), style="dim")
    return text.append(f" {level_db:4.0f} dB" if level_db > METER_FLOOR_DB else " silence")
