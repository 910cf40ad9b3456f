"""``Transcription``: the notes of a recording. It can be saved as MIDI, CSV, JSON or a score."""

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
from service.protocol.command_line import counted, write_atomically
from service.protocol.tempo import Tempo
from service.score import SCORES
from service.score.analysis import analyse
from service.score.beats import NO_BEAT_HINTS, BeatHints
from service.score.document import ScoreDocument
from service.stream.recording import TranscriptionResult

CSV_FIELDS = ("onset_s", "offset_s", "pitch", "velocity", "confidence", "instrument")


def write_csv(notes: Iterable[Note], file: TextIO) -> None:
    """Write a header line, then one line for each note."""
    rows = (tuple(getattr(note, field) for field in CSV_FIELDS) for note in notes)
    csv.writer(file, lineterminator="\n").writerows([CSV_FIELDS, *rows])


def json_file(transcription: "Transcription", hints: BeatHints = NO_BEAT_HINTS) -> bytes:
    """Return a JSON file, like the response of ``POST /transcribe``."""
    chords = analyse(transcription.notes, hints).chords_json
    notes = transcription.performance.to_json()
    body = {**notes, "chords": chords, **transcription.description}
    return f"{json.dumps(body, indent=1)}\n".encode()


@dataclass(frozen=True, eq=False, repr=False)
class Transcription:
    """A transcribed recording.

    Attributes:
        performance: notes, pedal and totals, as in the service.
        frame_probabilities: float32 [frames, 128], the probability that each pitch sounds.
        frame_rate_hz: frames per second. Frame f is at ``f / frame_rate_hz`` seconds.
        description: model, effective options, and the instruments that notes may have.
    """

    performance: TranscriptionResult
    frame_probabilities: NDArray[np.float32]
    frame_rate_hz: float
    description: Mapping[str, Any]

    @property
    def notes(self) -> list[Note]:
        """Notes, sorted by onset, then pitch."""
        return self.performance.notes

    @property
    def duration_s(self) -> float:
        """Duration of the audio in seconds."""
        return self.performance.totals.audio_s

    def __repr__(self) -> str:
        notes = counted(len(self.notes), "note")
        return f"<Transcription: {notes} in {self.duration_s:.1f} s>"

    def midi(self, tempo: float | Tempo | None = None) -> bytes:
        """Return a Standard MIDI File.

        tempo: beats per minute, or a ``Tempo`` with beats, bars and key. None means to estimate the
            tempo from the notes. The times of the notes do not depend on it. Raises ValueError for
            a number outside 20 to 400.
        """
        if tempo is None:
            tempo = analyse(self.notes).tempo
        elif not isinstance(tempo, Tempo):
            tempo = Tempo.of_bpm(tempo)
        return self.performance.midi(tempo)

    def score(self, title: str = "", hints: BeatHints = NO_BEAT_HINTS) -> ScoreDocument:
        """Return the score. Its ``save`` writes MusicXML, or PDF, which needs the extra "score"."""
        title = title or self.performance.title
        return ScoreDocument(self.notes, hints, title, pedal=self.performance.pedal)

    def save(self, path: str | os.PathLike[str], *, tempo: float | Tempo | None = None) -> None:
        """Write a file. Its suffix determines the format: ``.mid`` or ``.midi``, ``.json`` (like
        the response of ``POST /transcribe``), ``.csv``, or a score (``.musicxml``, ``.xml``,
        ``.mxl``, ``.pdf``). Only MIDI files use ``tempo`` (see ``midi``). Raises ValueError if the
        suffix is unknown or the tempo is out of range, ImportError if a PDF needs the extra
        ``score``, and OSError if the file cannot be written.
        """
        path = Path(path)
        match path.suffix.lower():
            case ".mid" | ".midi":
                write_atomically(path, self.midi(tempo))
            case ".json":
                write_atomically(path, json_file(self))
            case ".csv":
                text = io.StringIO(newline="")
                write_csv(self.notes, text)
                write_atomically(path, text.getvalue().encode())
            case ending if ending in SCORES:
                self.score(self.performance.title or path.stem).save(path)
            case ending:
                supported = f".mid, .json, .csv, {', '.join(SCORES)}"
                raise ValueError(f"the suffix must be one of {supported}, not {ending!r}")

    def to_pretty_midi(self) -> PrettyMIDI:
        """Return the MIDI file as a ``pretty_midi.PrettyMIDI``."""
        return PrettyMIDI(io.BytesIO(self.midi()))
