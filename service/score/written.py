"""A performance as a score, in the forms that people keep."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from service.protocol.midi_file import FileNote
from service.score import engrave, sheet
from service.score.analysis import Analysis, analyse
from service.score.beats import Wishes
from service.score.live import LiveBeat
from service.score.quantise import place_notes

STRAY = 0.02  # share of the notes below which an instrument is taken for a mistake


class WrittenScore:
    """The score of notes; needs the extra "score" (``sheet.ScoreExtraMissing`` says so).

    Attributes:
        analysis: beats, key, and whether there is a beat at all.
    """

    def __init__(
        self,
        notes: Sequence[FileNote],
        wishes: Wishes | None = None,
        title: str = "",
        said: Sequence[LiveBeat] | None = None,
    ) -> None:
        """Args:
        said: beats that were said while the music went on, to be kept as they are.
        """
        ended = [note for note in notes if note.offset_s is not None]
        self._notes = sorted(ended, key=lambda note: (note.onset_s, note.pitch))
        self._title = title
        self.analysis: Analysis = analyse(self._notes, wishes, said)

    @cached_property
    def _parts(self) -> list[sheet.PartNotes]:
        names = [note.instrument for note in self._notes]
        counts = Counter(names)
        main = max(counts, key=lambda name: counts[name], default=None)
        own = [main if counts[name] < STRAY * len(names) else name for name in names]
        parts = []
        for name in sorted(set(own), key=own.index):
            notes = [note for note, of in zip(self._notes, own, strict=True) if of == name]
            onset_s, offset_s, pitch = (
                np.array([getattr(note, field) for note in notes])
                for field in ("onset_s", "offset_s", "pitch")
            )
            placed = place_notes(onset_s, offset_s, pitch, self.analysis.beats)
            parts.append(sheet.PartNotes(name, pitch.tolist(), placed))
        return parts

    @cached_property
    def musicxml(self) -> bytes:
        """A MusicXML document."""
        analysis = self.analysis
        return sheet.musicxml(
            self._parts, analysis.beats, analysis.key, self._title, steady=analysis.steady
        )

    @property
    def bars_s(self) -> list[float]:
        """When each bar of the score begins."""
        beats = self.analysis.beats
        starts = np.array([float(start) for start, _ in sheet.bars_of(self._parts, beats)])
        return [float(time_s) for time_s in beats.time(starts)]

    def svg(self, width: int | None = None) -> list[str]:
        """SVG of each page, or of one page of this width in tenths of a millimetre."""
        return engrave.pages(self.musicxml, width)

    def pdf(self) -> bytes:
        """A PDF file of A4 pages."""
        return engrave.pdf(self.musicxml)

    def save(self, path: Path) -> list[Path]:
        """Write ``.musicxml``, ``.pdf``, or ``.svg``, which has a file for each page.

        Raises:
            ValueError: another ending.
            OSError: a file cannot be written.
        """
        match path.suffix.lower():
            case ".musicxml":
                path.write_bytes(self.musicxml)
            case ".pdf":
                path.write_bytes(self.pdf())
            case ".svg":
                pages = self.svg()
                paths = [
                    path,
                    *(path.with_stem(f"{path.stem}-{n}") for n in range(2, len(pages) + 1)),
                ]
                for place, page in zip(paths, pages, strict=True):
                    place.write_text(page)
                return paths
            case ending:
                raise ValueError(f"a score is .musicxml, .pdf or .svg, not {ending}")
        return [path]
