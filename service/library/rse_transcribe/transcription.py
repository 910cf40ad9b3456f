"""A transcribed recording: notes, files, a plot."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray
from pretty_midi import PrettyMIDI

from service.notes.events import Note
from service.notes.score import midi_file
from service.protocol.command_line import write_whole
from service.protocol.midi_file import Tempo
from service.score import SCORES
from service.score.analysis import analyse, quantised
from service.score.beats import Wishes
from service.score.written import WrittenScore
from service.stream.recording import Performance

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    performance: Performance
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
        return midi_file(self.notes, self.performance.pedal, tempo)

    def score(self, title: str = "", wishes: Wishes | None = None) -> WrittenScore:
        """The score: ``save`` it as .musicxml, .pdf or .svg. Needs the extra "score"."""
        return WrittenScore(self.notes, wishes, title)

    def quantized(self, wishes: Wishes | None = None) -> Transcription:
        """The same with notes that begin and end on the grid of their beats."""
        times_s = quantised(self.notes, analyse(self.notes, wishes))
        moved = [
            replace(note, onset_s=onset_s, offset_s=offset_s)
            for note, (onset_s, offset_s) in zip(self.notes, times_s, strict=True)
        ]
        return replace(self, performance=replace(self.performance, notes=moved))

    def save(self, path: str | os.PathLike[str], *, tempo: float | Tempo | None = None) -> None:
        """Write ``.mid``, ``.json`` (as ``POST /transcribe`` answers), ``.csv``, or a score:
        ``.musicxml``, ``.pdf`` or ``.svg``.

        Args:
            tempo: of a MIDI file, see ``midi``.

        Raises:
            ValueError: another ending, or an impossible tempo.
            OSError: the file cannot be written.
        """
        path = Path(path)
        match path.suffix.lower():
            case ".mid" | ".midi":
                write_whole(path, self.midi(tempo))
            case ".json":
                body = {**self.performance.body, **self.description}
                write_whole(path, f"{json.dumps(body, indent=1)}\n".encode())
            case ".csv":
                text = io.StringIO(newline="")
                write_csv(self.notes, text)
                write_whole(path, text.getvalue().encode())
            case ending if ending in SCORES:
                self.score(path.stem).save(path)
            case ending:
                known = ".mid, .json, .csv or a score"
                raise ValueError(f"save to {known}, not {ending or 'no ending'}")

    def to_pretty_midi(self) -> PrettyMIDI:
        """The MIDI file as a ``pretty_midi.PrettyMIDI``."""
        return PrettyMIDI(io.BytesIO(self.midi()))

    def plot(self, axes: Axes | None = None) -> Axes:
        """A piano roll: probabilities of the frames, and the notes found in them.

        Args:
            axes: where to draw; None takes matplotlib's current axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        try:
            import matplotlib.pyplot as plt
            from matplotlib.collections import LineCollection
        except ImportError as missing:
            raise ImportError(
                f"{missing.name} is missing: pip install 'rse-transcribe[library]'"
            ) from missing
        axes = axes or plt.gca()
        axes.imshow(
            self.frame_probabilities.T,
            origin="lower",
            aspect="auto",
            cmap="Greys",
            vmin=0,
            vmax=1,
            extent=(0, len(self.frame_probabilities) / self.frame_rate_hz, -0.5, 127.5),
        )
        notes = self.notes
        lines = [((note.onset_s, note.pitch), (note.offset_s, note.pitch)) for note in notes]
        axes.add_collection(LineCollection(lines, colors="C3", linewidths=2))
        pitches = [note.pitch for note in notes] or [21, 108]
        axes.set(
            xlabel="time in s",
            ylabel="MIDI pitch",
            xlim=(0, self.duration_s),
            ylim=(min(pitches) - 3, max(pitches) + 3),
        )
        return axes
