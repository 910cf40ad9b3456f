"""The beat of a performance, estimated from the onsets of its notes.

Onsets that keep to a beat of period p have nearly the same phase in it: the mean R(p) of
exp(2 pi i t / p) over the onsets t is long (Rayleigh's test for a direction on the circle). As
notes also fall between beats, a period counts for R(p) and for R(p / 2). A faster period explains
all that a slower one does, so of those that explain the onsets about as well the slowest is taken.

One beat is found for a whole performance; playing with a wandering tempo has none. pretty_midi's
estimate is not used: it always finds a tempo.
"""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.protocol.midi_file import DEFAULT_BEAT, FASTEST_BPM, SLOWEST_BPM, Beat

AUTO = "auto"
MIN_BPM = 50.0
MAX_BPM = 200.0
MIN_ONSETS = 8
# R of the best period, or of its half: below it nothing is steady enough to be called a beat.
LEAST_R = 0.6
AS_GOOD = 0.9  # of the best score
MAX_ONSETS = 2_000  # read from the beginning: more would tell little and cost much
_STEPS_A_CYCLE = 8  # of the finest change of period that shifts the last onset by one cycle


def add_tempo_option(parser: ArgumentParser) -> None:
    """``--tempo``, as ``beat_of`` takes it."""
    parser.add_argument(
        "--tempo",
        type=_tempo,
        default=DEFAULT_BEAT,
        metavar=f"BPM|{AUTO}",
        help=f"of the MIDI file; {AUTO} estimates it (default: {DEFAULT_BEAT.bpm:g})",
    )


def beat_of(onsets_s: Sequence[float], tempo: Beat | None, say: Callable[[str], None]) -> Beat:
    """The beat asked for, else that of the onsets; ``say`` is called if they have none."""
    if tempo is None and (tempo := estimate_beat(onsets_s)) is None:
        say(f"no steady beat: written at {DEFAULT_BEAT.bpm:g} beats per minute")
    return tempo or DEFAULT_BEAT


def estimate_beat(onsets_s: Sequence[float]) -> Beat | None:
    """The beat that onsets keep to, None where they keep to none or are too few.

    Twice or half the beat that a listener would tap is as good an answer as the beat itself.
    """
    onsets = np.sort(np.asarray(onsets_s, np.float64))[:MAX_ONSETS]
    if len(onsets) < MIN_ONSETS or onsets[-1] - onsets[0] < 4 * 60 / MIN_BPM:
        return None
    spread_s = onsets[-1] - onsets[0]
    # Evenly in frequency: each step turns the last onset against the first by a part of a cycle.
    lowest, highest = MIN_BPM / 60, MAX_BPM / 60
    frequencies = np.arange(lowest, highest, 1 / (spread_s * _STEPS_A_CYCLE * 2))
    beat, half = _resultant(onsets, frequencies), _resultant(onsets, 2 * frequencies)
    score = np.abs(beat) + np.abs(half)
    if max(np.abs(beat).max(), np.abs(half).max()) < LEAST_R:
        return None
    first_good = int(np.flatnonzero(score >= AS_GOOD * score.max())[0])
    # From where it begins to be good enough up to the top of that hill.
    top = first_good
    while top + 1 < len(score) and score[top + 1] >= score[top]:
        top += 1
    period_s = 1 / frequencies[top]
    # Where the beats themselves are as often silent as not, those between them have the phase.
    direction = beat[top] if np.abs(beat[top]) >= LEAST_R / 2 else np.sqrt(half[top])
    first_s = (np.angle(direction) / (2 * np.pi)) % 1.0 * period_s
    return Beat(period_s=float(period_s), first_s=float(first_s))


def _resultant(onsets: NDArray[np.float64], frequencies: NDArray[np.float64]) -> NDArray:
    """Mean of exp(2 pi i f t) over the onsets t, for each of evenly spaced frequencies f:
    [frequencies]."""
    out = np.zeros(len(frequencies), np.complex128)
    turn = np.exp(2j * np.pi * frequencies[0] * onsets)
    step = np.exp(2j * np.pi * (frequencies[1] - frequencies[0]) * onsets)
    for place in range(len(out)):
        out[place] = turn.mean()
        turn *= step
    return out


def _tempo(text: str) -> Beat | None:
    """None for ``auto``."""
    if text == AUTO:
        return None
    try:
        return Beat.of_bpm(float(text))
    except ValueError:
        least, most = f"{SLOWEST_BPM:g}", f"{FASTEST_BPM:g}"
        message = f"{AUTO}, or a number from {least} to {most}, not {text!r}"
        raise ArgumentTypeError(message) from None
