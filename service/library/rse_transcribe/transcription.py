"""A transcribed recording: notes and files."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from pretty_midi import PrettyMIDI

from service.notes.events import Note
from service.protocol.command_line import write_atomically
from service.protocol.midi_file import Tempo
from service.score import SCORES
from service.score.analysis import analyse
from service.score.beats import NO_BEAT_HINTS, BeatHints
from service.score.document import ScoreDocument
from service.stream.recording import TranscriptionResult

CSV_FIELDS = ("onset_s", "offset_s", "pitch", "velocity", "confidence", "instrument")


def write_csv(notes: Iterable[Note], file: TextIO) -> None:
    """A line with the names of the fields, then one for every note."""
    rows = (tuple(getattr(note, field) for field in CSV_FIELDS) for note in notes)
    csv.writer(file, lineterminator="\n").writerows([CSV_FIELDS, *rows])


@dataclass(frozen=True, eq=False, repr=False)
class Transcription:
    """A transcribed recording.

    Attributes:
        performance: notes, pedal, totals and MIDI file as the service gives them.
        frame_probabilities: float32 [frames, 128], how probable it is that a pitch sounds; 44 kB
            for a second of audio.
        frame_rate_hz: frames a second; frame f describes the sound at ``f / frame_rate_hz``.
        description: model, mode, look-ahead in ms, block of frames, instruments it may name.
    """

    performance: TranscriptionResult
    frame_probabilities: NDArray[np.float32]
    frame_rate_hz: float
    description: Mapping[str, Any]

    @property
    def notes(self) -> list[Note]:
        """The notes by onset, then pitch."""
        return self.performance.notes

    @property
    def duration_s(self) -> float:
        """Seconds of audio."""
        return self.performance.totals.audio_s

    def __repr__(self) -> str:
        return f"<Transcription: {len(self.notes)} notes in {self.duration_s:.1f} s>"

    def midi(self, tempo: float | Tempo | None = None) -> bytes:
        """A Standard MIDI File.

        Args:
            tempo: beats a minute; None takes the beats, bars and key that the notes suggest. The
                notes' times are the same with any.

        Raises:
            ValueError: a tempo below 20 or above 400.
        """
        if tempo is None:
            tempo = analyse(self.notes).tempo
        elif not isinstance(tempo, Tempo):
            tempo = Tempo.of_bpm(tempo)
        return self.performance.midi(tempo)

    def score(self, title: str = "", hints: BeatHints = NO_BEAT_HINTS) -> ScoreDocument:
        """The score: ``save`` it as .musicxml or .pdf. Needs the extra "score"."""
        return ScoreDocument(self.notes, hints, title, pedal=self.performance.pedal)

    def save(self, path: str | os.PathLike[str], *, tempo: float | Tempo | None = None) -> None:
        """Write ``.mid``, ``.json`` (as ``POST /transcribe`` answers), ``.csv``, or a score:
        ``.musicxml`` or ``.pdf``.

        Args:
            tempo: of a MIDI file, see ``midi``.

        Raises:
            ValueError: another ending, or an impossible tempo.
            OSError: the file cannot be written.
        """
        path = Path(path)
        match path.suffix.lower():
            case ".mid" | ".midi":
                write_atomically(path, self.midi(tempo))
            case ".json":
                body = {**self.performance.to_json(), **self.description}
                write_atomically(path, f"{json.dumps(body, indent=1)}\n".encode())
            case ".csv":
                text = io.StringIO(newline="")
                write_csv(self.notes, text)
                write_atomically(path, text.getvalue().encode())
            case ending if ending in SCORES:
                self.score(path.stem).save(path)
            case ending:
                known = ".mid, .json, .csv or a score"
                raise ValueError(f"save to {known}, not {ending or 'no ending'}")

    def to_pretty_midi(self) -> PrettyMIDI:
        """The MIDI file as a ``pretty_midi.PrettyMIDI``."""
        return PrettyMIDI(io.BytesIO(self.midi()))
