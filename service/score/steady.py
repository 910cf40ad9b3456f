"""Finds the beats of a performance with a constant tempo, such as music played to a click.

The spectrum of the onsets has a line at the rate of the shortest regular notes. The performance is
steady if this line is strong and keeps its phase throughout. The beat is the multiple of these
notes whose tempo is nearest to the tempo that people tap. Bars start where the evidence of the
metre is strongest.
"""

from operator import itemgetter

import numpy as np

from service.score.beat_tracker import chord_numbers
from service.score.beats import F64, BeatHints, Beats, smoothest
from service.score.metre import METRES, Metre, Units

STRUM_S = 0.06  # onsets within this time are one chord, which may be strummed
MIN_CHORDS, MIN_S, MAX_S = 16, 6.0, 3600.0
_BIN_S = 0.005
_RATES_HZ = (1.0, 12.0)  # range of the rate of the shortest regular notes
# Minimum length of the mean phase vector, and minimum of its square times the number of chords.
_MIN_LINE, _MIN_POWER = 0.4, 12.0
# Length of the windows in which the phase is measured, and maximum RMS deviation of the phases.
_WINDOW_S, _MAX_DRIFT_S = 8.0, 0.010
_TAPPED_BPM = 118.0  # usual tapped tempo: about the geometric mean of its range, 84 to 168
_CHORDS = 1.85  # usual number of chords in a beat: sparser music has slower beats
_MAX_GAP_S = 4.0
_MULTIPLES = {2: (1, 2, 4, 8), 3: (3, 6)}  # possible numbers of shortest notes in a beat
# For beats of three parts: minimum excess of the line at a third of the rate over the line at half
# of the rate.
_TRIPLE = 0.05
_SWUNG = 0.35  # minimum share of second thirds in the notes off the beat; a smaller share is swing
_USUAL = 2.0  # log likelihood that a bar has four beats, in addition to the metre's prior
_STARTS = 4.5  # log likelihood that the first chord starts a bar
_APART, _SLIP = 0.09, 5.0  # distance from the grid, in beats, that costs 1; cost of a slip
_MAX_SLIPS = 1
_JUDGED = 60  # number of beats evaluated at once, rounded down to complete bars


def find_steady_beats(notes: F64, hints: BeatHints) -> Beats | None:
    """Return beats on a constant grid, or None if the tempo is not steady or cannot be found.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    number = chord_numbers(notes[:, 0], STRUM_S)
    if len(number) == 0 or number[-1] + 1 < MIN_CHORDS:
        return None
    time_s = np.bincount(number, notes[:, 0]) / np.bincount(number)
    if not MIN_S <= time_s[-1] - time_s[0] <= MAX_S:
        return None
    rate_hz, strength = _strongest_line(time_s)
    if strength < _MIN_LINE or strength**2 * len(time_s) < _MIN_POWER:
        return None
    if _drift_s(time_s, rate_hz) > _MAX_DRIFT_S:
        return None
    count, subdivision = _notes_of_beat(time_s, rate_hz, hints)
    if hints.bpm and abs(60 * rate_hz / count / hints.bpm - 1) > 0.08:
        return None
    beats = _barred(notes, time_s, count / rate_hz, count, subdivision, hints)
    trusted = subdivision == 3 or hints.fixed_tempo
    return beats if trusted or _slips(time_s, beats) <= _MAX_SLIPS else None


def _slips(time_s: F64, beats: Beats) -> int:
    """Return how often the chords slip against the grid by a quarter of a beat. A short pause may
    cause a slip, which the phase of the shortest notes does not show."""
    position = beats.position(time_s)
    beat = np.floor(position + 1 / 8).astype(int).clip(0, len(beats.time_s) - 1)
    cost = np.zeros((len(beats.time_s), 3))
    for column, shift in enumerate((-0.25, 0.0, 0.25)):
        apart = np.abs((position - shift + 0.25) % 0.5 - 0.25)
        np.add.at(cost[:, column], beat, np.minimum(apart / _APART, 2.0))
    return int(np.count_nonzero(np.diff(smoothest(cost, _SLIP))))


def _resultant(time_s: F64, rate_hz: float) -> complex:
    """Return the mean phase vector: the mean of exp(2 pi i rate time) over the times."""
    return complex(np.exp(2j * np.pi * rate_hz * time_s).mean())


def _strongest_line(time_s: F64) -> tuple[float, float]:
    """Return the rate of the spectrum's strongest line, and the length of its mean phase vector."""
    place = np.round((time_s - time_s[0]) / _BIN_S).astype(int)
    size = 4 << int(place[-1]).bit_length()
    spectrum = np.abs(np.fft.rfft(np.bincount(place, minlength=size)))
    low, high = (round(rate * size * _BIN_S) for rate in _RATES_HZ)
    peak_hz = (low + int(spectrum[low:high].argmax())) / (size * _BIN_S)
    near_hz = peak_hz + np.linspace(-1, 1, 41) / (size * _BIN_S)
    lengths = [abs(_resultant(time_s, rate)) for rate in near_hz]
    best = int(np.argmax(lengths))
    return float(near_hz[best]), lengths[best]


def _drift_s(time_s: F64, rate_hz: float) -> float:
    """Return the RMS difference in s between the overall phase and the phases of windows."""
    vectors = np.exp(2j * np.pi * rate_hz * time_s)
    window = ((time_s - time_s[0]) / _WINDOW_S).astype(int)
    sums = np.bincount(window, vectors.real) + 1j * np.bincount(window, vectors.imag)
    apart = np.angle(sums * np.conj(sums.sum()))
    rms = np.sqrt((np.abs(sums) * apart**2).sum() / np.abs(sums).sum())
    return float(rms / (2 * np.pi * rate_hz))


def _notes_of_beat(time_s: F64, rate_hz: float, hints: BeatHints) -> tuple[int, int]:
    """Return the number of shortest notes per beat, and the subdivision of the beat."""
    halves, thirds = (abs(_resultant(time_s, rate_hz / parts)) for parts in (2, 3))
    parts = hints.subdivision or (3 if thirds > max(halves + _TRIPLE, 0.2) else 2)
    gaps_s = np.minimum(np.diff(time_s), _MAX_GAP_S)  # a pause has no tempo
    chords_hz = len(gaps_s) / gaps_s.sum()
    dense_bpm = min(_TAPPED_BPM, 60 * chords_hz / _CHORDS)
    tapped = np.log(hints.bpm or np.sqrt(_TAPPED_BPM * dense_bpm))
    count = min(_MULTIPLES[parts], key=lambda n: abs(np.log(60 * rate_hz / n) - tapped))
    if parts == 2 or hints.subdivision:
        return count, parts
    # In swing, notes off the beat are at its last third. Beats of swung eighths have two parts.
    phase = np.angle(_resultant(time_s, rate_hz / 3)) / (2 * np.pi)
    third = np.round(3 * (time_s * rate_hz / 3 - phase)).astype(int) % 3
    second, last = (np.count_nonzero(third == n) for n in (1, 2))
    return count, 3 if second > _SWUNG * (second + last) else 2


def _barred(
    notes: F64, time_s: F64, beat_s: float, count: int, subdivision: int, hints: BeatHints
) -> Beats:
    """Return beats of one length, with the phase and the bars that have the strongest evidence."""
    note_s = beat_s / count
    phase = np.angle(_resultant(time_s, 1 / note_s)) / (2 * np.pi) * note_s
    start_s = phase + note_s * np.round((time_s[0] - phase) / note_s)
    last = int(np.ceil((notes[:, 1].max() - start_s) / beat_s)) + 2
    candidates: list[tuple[float, Beats]] = []
    for shift in range(count):  # number of shortest notes from a beat to the first chord
        grid_s = start_s - shift * note_s + beat_s * np.arange(last)
        beats = Beats(grid_s, np.zeros(last, np.int64), 4, subdivision, 1.0)
        units = Units(notes, beats)
        for size in METRES if hints.beats_per_bar is None else (hints.beats_per_bar,):
            metre = Metre(subdivision, subdivision, size)
            step = _JUDGED // size * metre.bar
            phases = np.full(size, _USUAL if size == 4 else 0.0)
            for start in range(0, units.count, step):
                window = slice(start, start + step)
                phases += units.weighted(metre, window)[::subdivision]
                phases += units.prior(metre, window)
            if shift == 0:
                phases[0] += _STARTS
            if hints.first_downbeat_s is not None:
                downbeat = round((hints.first_downbeat_s - grid_s[0]) / beat_s)
                error_s = abs(grid_s[0] + downbeat * beat_s - hints.first_downbeat_s)
                phases[np.arange(size) != downbeat % size] = -np.inf
                phases -= 100 * error_s / beat_s
            first = int(np.argmax(phases))
            bar = (np.arange(last) - first) % size
            candidates.append((float(phases[first]), Beats(grid_s, bar, size, subdivision, 1.0)))
    return max(candidates, key=itemgetter(0))[1]
