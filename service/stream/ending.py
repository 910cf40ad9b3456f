"""The last message of a live session, with the MIDI file of its notes.

The file of a long performance takes seconds to write. The service writes it in another process,
because the other sessions of the worker must not wait.
"""

import base64
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from service import helper_process
from service.notes.events import Note, PedalPress
from service.notes.note_collector import midi_file
from service.protocol.server_messages import Done, DoneReason, Totals
from service.protocol.tempo import DEFAULT_TEMPO
from service.score.analysis import analyse
from service.score.live import LiveBeat

# Notes of a file that a worker writes itself, in about 25 ms. Bends count as BENDS_PER_NOTE.
MAX_SHORT_NOTES, BENDS_PER_NOTE = 1000, 2


@dataclass(frozen=True, slots=True)
class Ending:
    """Content of `done`. ``beats``: the detected beats, or None if the client did not request
    them."""

    reason: DoneReason
    seq: int  # number of the message
    totals: Totals
    notes: list[Note]
    pedal: list[PedalPress]
    beats: Sequence[LiveBeat] | None

    @property
    def is_short(self) -> bool:
        """True if ``done`` takes so little time that a worker may call it."""
        bends = sum(len(note.bends or ()) for note in self.notes)
        return len(self.notes) + bends / BENDS_PER_NOTE <= MAX_SHORT_NOTES

    def done(self) -> str:
        """Return the `done` message as JSON."""
        tempo = DEFAULT_TEMPO
        if self.beats is not None:
            tempo = analyse(self.notes, reported=self.beats, is_live=True).tempo
        midi = base64.b64encode(midi_file(self.notes, self.pedal, tempo)).decode()
        message = Done(reason=self.reason, totals=self.totals, midi_base64=midi)
        message.seq = self.seq
        return message.model_dump_json(exclude_none=True)


def pickled_done(ending: bytes) -> str:
    """Return ``Ending.done`` of a pickled ending. Called in a helper process."""
    helper_process.prepare()
    unpickled: Ending = pickle.loads(ending)
    return unpickled.done()
