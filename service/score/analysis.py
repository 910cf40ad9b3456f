"""What a performance says of its beats, bars and key, for its MIDI file and its score."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from service.protocol.midi_file import FASTEST_BPM, SLOWEST_BPM, STEADY, FileNote, Tempo
from service.score.beats import SURE, Beats, Wishes
from service.score.keys import Key, key_of
from service.score.live import LiveBeat, whole
from service.score.programme import find_beats
from service.score.quantise import place_notes

_FREE_BEAT_S = 0.5  # a quarter of proportional notation
NO_BEAT = "no steady beat: written in free rhythm"


@dataclass(frozen=True)
class Analysis:
    """Attributes:
    beats: if not ``steady`` a beat every half second, to write free time with.
    steady: whether the performance keeps to a beat.
    """

    beats: Beats
    key: Key
    steady: bool

    @property
    def tempo(self) -> Tempo:
        """For a MIDI file; the standard's, without bars, if there is no beat."""
        if not self.steady:
            return replace(STEADY, key=self.key.name)
        beats = self.beats
        bars = beats.bars(0, len(beats.time_s))
        changes = [next(same) for _, same in groupby(bars, key=lambda bar: bar[1])]
        unit, below = (1, 4) if beats.subdivision == 2 else (3, 8)
        return Tempo(
            beats_s=beats.time_s.tolist(),
            quarters=float(beats.quarters),
            bars=[(int(beat), unit * size, below) for beat, size in changes],
            key=self.key.name,
        )

    @property
    def said(self) -> list[dict[str, float]]:
        """The beats as JSON, none if there is no beat."""
        beats = self.beats
        same = {"beats_per_bar": beats.beats_per_bar, "subdivision": beats.subdivision}
        pairs = zip(beats.time_s.tolist(), beats.bar.tolist(), strict=True)
        return [{"time_s": t, "place": place, **same} for t, place in pairs if self.steady]


def as_array(notes: Sequence[FileNote]) -> NDArray[np.float64]:
    """[notes, 4]: onset and offset in s, pitch, velocity; by onset, without notes that sound on."""
    rows = [
        (note.onset_s, note.offset_s, note.pitch, note.velocity)
        for note in notes
        if note.offset_s is not None
    ]
    array = np.array(rows, float).reshape(-1, 4)
    return array[np.lexsort((array[:, 2], array[:, 0]))]


def analyse(
    notes: Sequence[FileNote],
    wishes: Wishes | None = None,
    said: Sequence[LiveBeat] | None = None,
) -> Analysis:
    """Beats and key of the notes. Where the wishes name a tempo or a metre, there is a beat.

    Args:
        said: beats that were said while the music went on, to be kept as they are.
    """
    wishes = wishes or Wishes()
    array = as_array(notes)
    key = key_of(array[:, 2].astype(int), array[:, 1] - array[:, 0])
    end_s = float(array[:, 1].max(initial=0))
    if said is None:
        beats = find_beats(array, wishes)
    else:
        beats = whole(said, float(array[:, 0].min(initial=end_s)), end_s)
    wished = wishes != Wishes()
    if beats is not None and (wished or beats.confidence >= SURE):
        return Analysis(beats, key, steady=True)
    end_s += 1
    period_s = 60 / wishes.bpm if wishes.bpm else _FREE_BEAT_S
    time_s = np.arange(0, end_s + 2 * period_s, period_s)
    metre = wishes.beats_per_bar or 4
    free = Beats(time_s, np.arange(len(time_s)) % metre, metre, 2, 0.0)
    return Analysis(free, key, steady=wishes.bpm is not None)


def quantised(notes: Sequence[FileNote], analysis: Analysis) -> list[tuple[float, float]]:
    """Onset and offset of each note in s, moved to the grid; the notes are by onset and ended."""
    array = np.array([(note.onset_s, note.offset_s, note.pitch) for note in notes], float)
    beats = analysis.beats
    if not len(array) or not analysis.steady:
        return [(float(on), float(off)) for on, off, _ in array]
    placed = place_notes(array[:, 0], array[:, 1], array[:, 2].astype(int), beats)
    out = []
    for note in placed:
        onset_s, offset_s = beats.time(np.array([note.onset, note.onset + note.length], float))
        out.append((max(0.0, float(onset_s)), float(offset_s)))
    return out


def add_beat_options(parser: ArgumentParser) -> None:
    """What a listener knows of the beat better than its estimate does; one line of help."""
    parser.add_argument(
        "--bpm", type=_bpm, help="+ --beats-per-bar, --first-downbeat, --fixed-tempo"
    )
    parser.add_argument("--beats-per-bar", type=int, choices=(2, 3, 4), help=SUPPRESS)
    parser.add_argument("--first-downbeat", type=float, metavar="S", help=SUPPRESS)
    parser.add_argument("--fixed-tempo", action="store_true", help=SUPPRESS)


def wishes_of(options: Namespace) -> Wishes:
    """What ``add_beat_options`` took."""
    return Wishes(options.bpm, options.beats_per_bar, options.first_downbeat, options.fixed_tempo)


def _bpm(text: str) -> float:
    try:
        bpm = float(text)
    except ValueError:
        bpm = 0.0
    if not SLOWEST_BPM <= bpm <= FASTEST_BPM:
        raise ArgumentTypeError(f"a number from {SLOWEST_BPM:g} to {FASTEST_BPM:g}, not {text!r}")
    return bpm
