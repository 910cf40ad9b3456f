"""Recordings for fine-tuning, with checked labels.

Labels are MIDI files or tables of notes with the stem of their recording. They describe the
performance, or they are a score, which is aligned with the recording. The onsets that the initial
weights detect decide between the two: if many of them agree with the labels throughout the
recording, at one constant shift, the labels describe the performance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from tqdm import tqdm

from model.config import SAMPLE_RATE
from model.instruments import UNKNOWN
from rse_transcribe.files import SUFFIXES
from service.audio.decode import AudioDecoder
from service.audio.tuning import BLOCK, TOLERANCE_CENTS, Tuner
from service.engine.local import LocalEngine
from service.notes.frames import peaks
from service.protocol.errors import ProtocolError
from training.arrays import F32, F64, Bools
from training.music.aligner import MIN_ONSET_PROBABILITY, PEAK_LEAD_S, align
from training.music.notes import FRAME_S, FRAME_UNKNOWN, Notes, nearest
from training.music.real import EDGE_S, RealRecording, rows, uncertain_regions
from training.music.recordings import Pcm, Recording, from_pcm, read_collection, to_pcm
from training.music.transcribe import transcribe_array

MIN_S, MAX_S = 5.0, 3600.0  # length of a recording
MIN_NOTES = 8
MIN_PEAK = 1e-3  # peak relative to full scale below which a recording is silent
MAX_CLIPPED = 0.05  # maximum share of samples at the peak; the share of a pure sine is 0.028
MAX_SHIFT_S = 2.0  # maximum shift of the labels of a performance
MIN_SHIFT_S = 0.04  # minimum shift that is corrected; smaller ones may be detection errors
INEXACT_S = 0.008
"""Median distance of labels from detected onsets above which labels are inexact. Measured: 3.5 ms
for labels from pickups, 7 to 29 ms for labels by hand."""
NEAR_S = 0.05  # distance from a label within which a detected onset supports it
MIN_CONTRAST = 0.2
"""Minimum excess of the share of supported labels over their mean share at all shifts."""
QUARTER_CONTRAST = 0.4  # minimum contrast of every quarter, as a share of the overall contrast
SURE_SUPPORT = 0.6  # share of supported labels above which no alignment as a score is tried
SCORE_GAIN = 0.25  # minimum gain in supported notes for which labels are aligned as a score
MIN_ALIGNED = 0.5  # minimum share of a score's notes that are detected at their aligned times
MIN_AGREEMENT = 0.15  # minimum agreement of the spectral peaks for a known tuning

Kind = Literal["auto", "performance", "score"]


class UnfitError(ValueError):
    """A recording does not pass a check. The message states the reason."""


@dataclass(frozen=True)
class UserRecording:
    """A recording that passed the checks."""

    recording: RealRecording  # labels shifted or aligned; for validation and test
    training_copy: RealRecording
    """Resampled to A4 = 440 Hz, with inexact onsets moved to the detected onsets."""
    kind: Kind  # "performance" or "score"
    support: float  # share of the labelled notes whose onset is detected
    shift_s: float  # seconds that were added to the labels
    cents: float  # tuning in cents above A4 = 440 Hz


@dataclass(frozen=True)
class UserCollection:
    """The recordings of a folder, sorted by name."""

    recordings: list[UserRecording] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # reasons by name
    unlabelled: list[Pcm] = field(default_factory=list)  # audio at SAMPLE_RATE

    def table(self) -> str:
        """Format one line for each recording."""
        lines = [
            f"{'recording':32}{'seconds':>8}{'notes':>7}{'labels':>13}{'detected':>10}  tuning"
        ]
        for own in self.recordings:
            shift = f", labels shifted by {1000 * own.shift_s:+.0f} ms" if own.shift_s else ""
            source = own.recording
            lines.append(
                f"{source.name[:31]:32}{len(source.audio) / SAMPLE_RATE:8.1f}{len(source.notes):7}"
                f"{own.kind:>13}{own.support:>9.0%}   {own.cents:+.0f} cents{shift}"
            )
        lines += [f"{name[:31]:32}left out: {reason}" for name, reason in self.left_out.items()]
        if self.unlabelled:
            lines.append(
                f"recordings without labels, used only without --rendered: {len(self.unlabelled)}"
            )
        return "\n".join(lines)


def read_folder(folder: Path, computer: LocalEngine, kind: Kind = "auto") -> UserCollection:
    """Read and check all recordings below a folder. Raises LabelError if none has labels."""
    collection = read_collection(folder, SUFFIXES)
    result = UserCollection(left_out=dict(collection.failures))
    for recording in tqdm(collection.recordings, "reading", unit="recording"):
        try:
            result.recordings.append(_checked(recording, computer, kind))
        except (OSError, UnfitError, ProtocolError) as error:
            result.left_out[recording.name] = str(error)
    for path in collection.unlabelled:
        try:
            result.unlabelled.append(_at_model_rate(*_decoded(path)))
        except (OSError, ProtocolError) as error:
            result.left_out[path.name] = str(error)
    return result


def _decoded(path: Path) -> tuple[F32, int]:
    """Return mono samples and their rate in Hz. Raises ProtocolError if decoding fails or
    the audio is longer than MAX_S."""
    with path.open("rb") as file, AudioDecoder(file, MAX_S) as decoder:
        return np.concatenate([*decoder]), decoder.audio.sample_rate_hz


def _at_model_rate(samples: F32, rate: float) -> Pcm:
    """Resample samples, -1..1, from ``rate`` in Hz to SAMPLE_RATE."""
    return to_pcm(soxr.resample(samples, rate, SAMPLE_RATE))


def _checked(recording: Recording, computer: LocalEngine, kind: Kind) -> UserRecording:
    """Check a recording and prepare its labels. Raises UnfitError if a check fails, and
    ProtocolError if the audio cannot be decoded or is longer than MAX_S."""
    samples, rate = _decoded(recording.audio)
    notes, length_s = recording.notes, len(samples) / rate
    peak = float(np.abs(samples).max())
    clipped = float(np.mean(np.abs(samples) >= 0.999 * peak))
    if length_s < MIN_S:
        raise UnfitError(f"shorter than {MIN_S:g} s")
    if len(notes) < MIN_NOTES:
        raise UnfitError(f"fewer than {MIN_NOTES} labelled notes")
    if peak < MIN_PEAK:
        raise UnfitError("silent")
    if clipped > MAX_CLIPPED:
        raise UnfitError(f"clipped: {clipped:.1%} of the samples are at the peak")
    if len(np.unique(notes.velocity)) == 1:  # a constant value is not a velocity
        notes = notes.replaced(velocity=np.zeros(len(notes), np.float32))
    audio = _at_model_rate(samples, rate)
    sounding, onset = transcribe_array(
        samples, rate, computer, heads=("frame", "onset")
    ).probabilities
    cents = tuning_cents(audio)
    match = label_match(notes, onset)
    name, support = recording.name, match.support
    can_be_performance = kind == "auto" and match.fits
    if kind == "performance" or (can_be_performance and support >= SURE_SUPPORT):
        return _performance_recording(name, audio, notes, match, cents)
    aligned = align(notes, sounding, onset)
    aligned_support = float(aligned.detected.mean())
    if can_be_performance and aligned_support < support + SCORE_GAIN:
        return _performance_recording(name, audio, notes, match, cents)
    if aligned_support < MIN_ALIGNED:
        raise UnfitError(
            f"the labels do not fit: {support:.0%} of the notes are detected at their times, "
            f"{aligned_support:.0%} after alignment as a score{_transposed(notes, onset)}"
        )
    classes = np.unique(notes.instrument)
    written = aligned.notes.played_by(int(classes[0]) if len(classes) == 1 else UNKNOWN)
    uncertain = uncertain_regions(aligned, np.zeros(0), ornamented=False)
    checked = RealRecording(name, audio, written, uncertain)
    copy = at_concert_pitch(checked, cents)
    return UserRecording(checked, copy, "score", aligned_support, 0.0, cents)


class Match(NamedTuple):
    """Agreement of labels with the detected onsets, if they describe the performance."""

    support: float  # share of the labelled notes whose onset is detected
    shift_s: float  # best shift of the labels; 0 if it is below MIN_SHIFT_S
    fits: bool  # True if the labels agree with the onsets throughout the recording
    onset_s: F64  # [n], shifted onsets; if the labels are inexact, detected onsets near them
    exact: bool


def _performance_recording(
    name: str, audio: Pcm, notes: Notes, match: Match, cents: float
) -> UserRecording:
    """Return a recording whose labels describe the performance. Raises UnfitError if most labels
    are after the end of the audio."""
    shifted = notes.shifted(match.shift_s)
    inside = shifted.onset < len(audio) / SAMPLE_RATE
    if inside.mean() < 0.5:
        raise UnfitError("most labels are after the end of the audio: are they in seconds?")
    checked = RealRecording(name, audio, shifted.where(inside), np.zeros((0, 4)))
    offset = np.maximum(shifted.offset, match.onset_s + 0.04)
    detected = shifted.replaced(onset=match.onset_s, offset=offset).where(inside)
    uncertain = checked.unknown
    if not match.exact:  # inexact offsets would shorten or lengthen notes of related instruments
        start_s, end_s = detected.offset - EDGE_S, detected.offset + EDGE_S
        uncertain = rows(start_s, end_s, detected.pitch, FRAME_UNKNOWN)
    copy = at_concert_pitch(replace(checked, notes=detected, unknown=uncertain), cents)
    return UserRecording(checked, copy, "performance", match.support, match.shift_s, cents)


def label_match(notes: Notes, onset: F32) -> Match:
    """Compare labels with onset probabilities, [frames, PITCHES]."""
    peak, pitch = peaks(onset, 1, MIN_ONSET_PROBABILITY)[1:-1].nonzero()
    if not len(peak):
        return Match(0.0, 0.0, False, notes.onset, True)
    peak_s = np.asarray((peak + 1) * FRAME_S, np.float64) + PEAK_LEAD_S
    support, shift_s, fits = _best_shift(notes, onset)
    label_s = notes.onset + shift_s
    nearest_peak = nearest(peak_s, pitch, label_s, notes.pitch.astype(np.int64), NEAR_S)
    is_detected = nearest_peak >= 0
    detected_s = peak_s[nearest_peak[is_detected]]
    late_s = detected_s - label_s[is_detected]
    median_s = float(np.median(late_s)) if len(late_s) else 0.0
    shift_s += median_s
    if abs(shift_s) < MIN_SHIFT_S:
        shift_s = 0.0
    onset_s = np.maximum(0, notes.onset + shift_s)
    exact = not len(late_s) or bool(np.median(np.abs(late_s - median_s)) <= INEXACT_S)
    if not exact:
        onset_s[is_detected] = detected_s
    return Match(support, shift_s, fits, onset_s, exact)


def _best_shift(notes: Notes, onset: F32) -> tuple[float, float, bool]:
    """Return the share of labels that detected onsets support at the best constant shift, this
    shift in seconds, and True if the support exceeds chance throughout the recording."""
    near, farthest = round(NEAR_S / FRAME_S), round(MAX_SHIFT_S / FRAME_S)
    detected = maximum_filter1d(onset, 2 * near + 1, axis=0) >= MIN_ONSET_PROBABILITY
    frame = np.rint(notes.onset / FRAME_S).astype(int)
    lags = np.arange(-farthest, farthest + 1)
    supported = np.stack([_at(detected, frame + lag, notes) for lag in lags])  # [lags, notes]
    share = supported.mean(axis=1)
    best = int(np.median(np.flatnonzero(share == share.max())))
    contrast = supported[best] - supported.mean(axis=0)  # relative to chance
    overall = float(contrast.mean())
    weakest = min(float(quarter.mean()) for quarter in np.array_split(contrast, 4))
    fits = overall >= MIN_CONTRAST and weakest >= QUARTER_CONTRAST * overall
    return float(share[best]), float(lags[best] * FRAME_S), fits


def _at(detected: Bools, frame: NDArray[np.int_], notes: Notes) -> Bools:
    """Return True for each note, [n], whose pitch is detected at its frame."""
    inside = (frame >= 0) & (frame < len(detected))
    return inside & detected[np.clip(frame, 0, len(detected) - 1), notes.pitch]


def _transposed(notes: Notes, onset: F32) -> str:
    """Return a hint for an error message if the labels seem transposed."""
    written = np.bincount(notes.pitch, minlength=onset.shape[1]).astype(float)
    sounding = (onset >= MIN_ONSET_PROBABILITY).sum(axis=0).astype(float)
    fit = {step: float(written @ np.roll(sounding, -step)) for step in range(-12, 13)}
    best = max(fit, key=lambda step: fit[step])
    clear = best and fit[best] > 1.3 * fit[0]
    return f"; the music may sound {best:+d} semitones from its labels" if clear else ""


def tuning_cents(audio: Pcm) -> float:
    """Return the tuning of the first ten minutes in cents above A4 = 440 Hz; 0 if it is unknown."""
    tuner = Tuner(SAMPLE_RATE, 3)
    start = from_pcm(audio[: 600 * SAMPLE_RATE])
    tuner.write(start)
    tunings = [tuner.at(sample) for sample in (*range(0, len(start), 16 * BLOCK), len(start))]
    total = sum(complex(tuning.along, tuning.across) for tuning in tunings)
    blocks = sum(tuning.blocks for tuning in tunings)
    if not blocks or abs(total) < MIN_AGREEMENT * blocks:
        return 0.0
    return float(100 * np.angle(total) / (2 * np.pi))


def at_concert_pitch(recording: RealRecording, cents: float) -> RealRecording:
    """Resample a recording from its tuning, ``cents``, to A4 = 440 Hz. Return it unchanged if the
    tuning is at most TOLERANCE_CENTS from A4 = 440 Hz."""
    if abs(cents) <= TOLERANCE_CENTS:
        return recording
    speed = 2 ** (-cents / 1200)
    source, notes, unknown = recording.part(0, len(recording.audio), speed)
    audio = _at_model_rate(source, speed * SAMPLE_RATE)
    return replace(recording, audio=audio, notes=notes, unknown=unknown)


class Split(NamedTuple):
    """Parts of the recordings."""

    train: list[UserRecording]  # to train the weights
    validation: list[UserRecording]  # to choose the interpolation and the tracker's settings
    test: list[UserRecording]  # for the reported accuracy
    description: str


MARGIN_S = 1.0  # audio before the first and after the last note of a recording that is cut
FEW = 10  # number of recordings below which parts of the training recordings are for validation


def split(recordings: Sequence[UserRecording], seed: int) -> Split:
    """Split recordings: a fifth for validation, a fifth for testing, and the rest for training.

    A fifth of fewer than FEW recordings would not be representative. In that case, the last
    quarters of the training recordings are for validation. One or two recordings are split by time.
    Raises ValueError if there are none, or if a part contains no notes.
    """
    parts = _split(recordings, seed)
    for name in ("train", "validation", "test"):
        if not any(len(own.recording.notes) for own in getattr(parts, name)):
            raise ValueError(f"the {name} part contains no notes: add recordings")
    return parts


def _split(recordings: Sequence[UserRecording], seed: int) -> Split:
    if not recordings:
        raise ValueError("no recording with usable labels")
    if len(recordings) < 3:
        spans = (0.0, 0.6), (0.6, 0.8), (0.8, 1.0)
        train, validation, test = ([_cut(own, *span) for own in recordings] for span in spans)
        text = "by time: 60 % for training, 20 % for validation, 20 % for testing"
        return Split(train, validation, test, text)
    order = np.random.default_rng(seed).permutation(len(recordings))
    fifth = max(1, round(len(recordings) / 5))
    test, rest = ([recordings[i] for i in sorted(part)] for part in (order[:fifth], order[fifth:]))
    if len(recordings) < FEW:
        train, validation = ([_cut(own, *span) for own in rest] for span in ((0, 0.75), (0.75, 1)))
        text = f"{len(rest)} recordings for training, their last quarters for validation"
    else:
        validation = [recordings[i] for i in sorted(order[fifth : 2 * fifth])]
        train = [recordings[i] for i in sorted(order[2 * fifth :])]
        text = f"{len(train)} recordings for training, {fifth} for validation"
    return Split(train, validation, test, f"{text}, {fifth} for testing")


def _cut(own: UserRecording, begin: float, end: float) -> UserRecording:
    """Return the part of a recording between two fractions of its labelled span."""

    def part(source: RealRecording) -> RealRecording:
        first, last = _labelled_span(source)
        start, stop = (first + round(fraction * (last - first)) for fraction in (begin, end))
        _, notes, unknown = source.part(start, stop - start)
        return replace(source, audio=source.audio[start:stop], notes=notes, unknown=unknown)

    return replace(own, recording=part(own.recording), training_copy=part(own.training_copy))


def _labelled_span(source: RealRecording) -> tuple[int, int]:
    """Return the ends of the part with notes and MARGIN_S around it, at least MIN_S, in samples."""
    length, notes = len(source.audio), source.notes
    shortest = min(length, round(MIN_S * SAMPLE_RATE))
    begin, end = notes.onset.min() - MARGIN_S, notes.offset.max() + MARGIN_S
    first = min(max(0, round(begin * SAMPLE_RATE)), length - shortest)
    return first, max(min(length, round(end * SAMPLE_RATE)), first + shortest)
