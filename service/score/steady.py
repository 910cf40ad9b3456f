"""Finds the beats of a performance with a constant tempo, such as music played to a click.

The spectrum of the onsets has a line at the rate of the shortest regular notes. The performance is
steady if this line is strong and keeps its phase throughout. A beat is a multiple of these notes.
Of all multiples, phases and bars, those are chosen that have the strongest evidence of a metre and
a tempo near the one that people tap.
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

import numpy as np

from service.score.beat_tracker import chord_numbers
from service.score.beats import F64, BeatHints, Beats, smoothest
from service.score.metre import METRES, ON_UNIT, Metre, Units

STRUM_S = 0.06  # onsets within this time are one chord, which may be strummed
MIN_CHORDS, MIN_S, MAX_S = 16, 6.0, 3600.0
_BIN_S = 0.005
_RATES_HZ = (1.0, 12.0)  # range of the rate of the shortest regular notes
_AS_STRONG = 0.85  # share of the strongest line that makes a slower line the line of the notes
# Minimum length of the mean phase vector, and minimum of its square times the number of chords.
_MIN_LINE, _MIN_POWER = 0.4, 12.0
# Length of the windows in which the phase is measured, and maximum RMS deviation of the phases.
_WINDOW_S, _MAX_DRIFT_S = 8.0, 0.010
_TAPPED_BPM = 118.0  # usual tapped tempo: about the geometric mean of its range, 84 to 168
_TEMPO = 10.0  # cost of a beat whose length differs from the usual one by a factor of e
_CHORDS = 1.85  # usual number of chords in a beat: sparser music has slower beats
_MAX_GAP_S = 4.0
_EVALUATED_S = 300.0  # the metre of longer performances is that of their start
_BEATS_S = (0.28, 1.6)  # range of the beat length
# Number of shortest notes in a beat, and parts of the beat. Three shortest notes in a beat of two
# parts are swung eighths.
_SWING = (3, 2)
_READINGS = ((1, 2), (2, 2), (4, 2), (8, 2), (3, 3), (6, 3), _SWING)
# Log likelihoods, chosen on scores with known bars (training/RESULTS.md).
_TRIPLE = -3.0  # beats of three parts
_THIRDS = 10.0  # line at a third of the rate, in excess of the line at half of the rate
_SWUNG = 2.0  # swing
# Share, above _MAX_SECOND, of second thirds in the notes off a swung beat, which should be at the
# last third.
_UNSWUNG, _MAX_SECOND = -40.0, 0.05
_STARTS = 1.0  # the first chord starts a bar
_OFF_GRID = -15.0  # all chords are between the units of the grid
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
    start = notes[: np.searchsorted(notes[:, 0], notes[0, 0] + _EVALUATED_S)]
    candidates = [
        (likelihood + evidence, beats)
        for likelihood, count, parts in _readings(time_s, rate_hz, hints)
        for evidence, beats in _barred(start, time_s, rate_hz, count, parts, hints)
    ]
    if not candidates:
        return None
    beats = _until(max(candidates, key=itemgetter(0))[1], notes[:, 1].max())
    trusted = beats.subdivision == 3 or hints.fixed_tempo
    return beats if trusted or _slips(time_s, beats, rate_hz) <= _MAX_SLIPS else None


def _until(beats: Beats, end_s: float) -> Beats:
    """Return the beats, continued until two beats after ``end_s``."""
    number = np.arange(int(np.ceil(beats.position(np.array(end_s)))) + 2)
    bar = (number + beats.bar[0]) % beats.beats_per_bar
    return replace(beats, time_s=beats.time(number.astype(float)), bar=bar)


def _slips(time_s: F64, beats: Beats, rate_hz: float) -> int:
    """Return how often the chords slip against the grid by a quarter of a beat, or by a shortest
    note if a beat has more than four. A short pause may cause a slip, which the phase of the
    shortest notes does not show."""
    period_s = min(float(beats.time_s[1] - beats.time_s[0]), 4 / rate_hz)
    position = (time_s - beats.time_s[0]) / period_s
    period = np.floor(position + 1 / 8).astype(int).clip(0)
    cost = np.zeros((period.max() + 1, 3))
    for column, shift in enumerate((-0.25, 0.0, 0.25)):
        apart = np.abs((position - shift + 0.25) % 0.5 - 0.25)
        np.add.at(cost[:, column], period, np.minimum(apart / _APART, 2.0))
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
    strongest = spectrum[low:high].max()
    # A few faster notes may make a line at a multiple of the rate slightly stronger.
    first = low + int(np.argmax(spectrum[low:high] >= _AS_STRONG * strongest))
    peak = first + int(spectrum[first : first + 8].argmax())
    peak_hz = peak / (size * _BIN_S)
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


def _readings(time_s: F64, rate_hz: float, hints: BeatHints) -> list[tuple[float, int, int]]:
    """Return the possible beats: their log likelihood before their bars are known, the number of
    shortest notes in a beat, and the number of its parts."""
    halves, thirds = (abs(_resultant(time_s, rate_hz / parts)) for parts in (2, 3))
    gaps_s = np.minimum(np.diff(time_s), _MAX_GAP_S)  # a pause has no tempo
    chords_hz = len(gaps_s) / gaps_s.sum()
    dense_bpm = min(_TAPPED_BPM, 60 * chords_hz / _CHORDS)
    tapped_s = 60 / np.sqrt(_TAPPED_BPM * dense_bpm)
    readings = []
    for reading in _READINGS:
        count, parts = reading
        beat_s = count / rate_hz
        if hints.subdivision not in (None, parts):
            continue
        if hints.bpm and abs(60 / beat_s / hints.bpm - 1) > 0.08:
            continue
        if not hints.bpm and not _BEATS_S[0] < beat_s < _BEATS_S[1]:
            continue
        likelihood = -_TEMPO * np.log(beat_s / tapped_s) ** 2
        if count % 3 == 0:
            likelihood += _THIRDS * (thirds - halves)
        if parts == 3:
            likelihood += _TRIPLE
        if reading == _SWING:
            likelihood += _SWUNG
        readings.append((float(likelihood), count, parts))
    return readings


def _barred(
    notes: F64, time_s: F64, rate_hz: float, count: int, parts: int, hints: BeatHints
) -> Iterator[tuple[float, Beats]]:
    """Yield beats of ``count`` shortest notes for each phase and number of beats in a bar. Their
    bars have the strongest evidence, whose log likelihood is the first value."""
    beat_s = count / rate_hz
    phase = np.angle(_resultant(time_s, rate_hz)) / (2 * np.pi) / rate_hz
    start_s = phase + np.round((time_s[0] - phase) * rate_hz) / rate_hz
    last = int(np.ceil((notes[:, 1].max() - start_s) / beat_s)) + 2
    for shift in range(count):  # number of shortest notes from a beat to the first chord
        grid_s = start_s - shift / rate_hz + beat_s * np.arange(last)
        beats = Beats(grid_s, np.zeros(last, np.int64), 4, parts, 1.0)
        units = Units(notes, beats)
        # Without this cost, a grid between all chords would have no evidence against it.
        off_grid = _off_grid(beats.position(time_s), (count, parts))
        for size in METRES if hints.beats_per_bar is None else (hints.beats_per_bar,):
            metre = Metre(parts, parts, size)
            step = _JUDGED // size * metre.bar
            windows = [slice(start, start + step) for start in range(0, units.count, step)]
            # The mean, because shorter beats have more windows.
            phases = np.full(size, off_grid)
            for window in windows:
                evidence = units.weighted(metre, window)[::parts] + units.prior(metre, window)
                phases += evidence / len(windows)
            if shift == 0:
                phases[0] += _STARTS
            if hints.first_downbeat_s is not None:
                downbeat = round((hints.first_downbeat_s - grid_s[0]) / beat_s)
                error_s = abs(grid_s[0] + downbeat * beat_s - hints.first_downbeat_s)
                phases[np.arange(size) != downbeat % size] = -np.inf
                phases -= 100 * error_s / beat_s
            first = int(np.argmax(phases))
            bar = (np.arange(last) - first) % size
            yield float(phases[first]), Beats(grid_s, bar, size, parts, 1.0)


def _off_grid(position: F64, reading: tuple[int, int]) -> float:
    """Return the log likelihood of chords between the parts of the beats. ``position`` is in
    beats."""
    count, parts = reading
    if reading == _SWING:
        third = np.round(position * count).astype(int) % count
        _, second, last = np.bincount(third, minlength=count)
        return float(_UNSWUNG * max(0.0, second / max(1, second + last) - _MAX_SECOND))
    place = position * parts
    return _OFF_GRID * float((np.abs(place - np.round(place)) > ON_UNIT).mean())
