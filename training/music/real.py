"""Real recordings with scores as training data.

A folder holds ``index.json``: a list of entries with ``id``, ``audio`` and optionally ``score`` (a
MIDI file; without one the recording is skipped), ``split`` ("train" or "validation"),
``instruments`` ("solo piano ..."), ``ornaments`` (whether the player adds notes).
``ornaments/ID.tsv`` lists the score times of ornament signs that the score does not play out. Each
recording is aligned once, with the shipped weights, and kept in the cache folder.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS, PITCHES, SAMPLE_RATE
from model.storage import load, replace_file
from service.engine.local import LocalComputer
from training.arrays import F32, F64
from training.music.aligner import RELEASE_S, Aligned, align_files
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, next_strokes, notes_of
from training.music.recordings import PCM_SCALE, stored_audio

DOUBT = 0.25  # notes of lower confidence are trained neither as notes nor as silence
NEAR_S = 0.1  # masked on either side of a doubtful onset
HELD = 0.6
"""Fraction of the written length for which a key is certainly held: detached playing releases it
about then, and long notes fade."""
RINGING_RELEASE_S = 4.0  # in place of RELEASE_S if the pedal is often down
RINGING = 0.12
"""Mean frame probability RELEASE_S after written ends that means the pedal is often down."""
ORNAMENT_PITCHES = 2  # semitones around a note with an ornament sign that may be played
UNWRITTEN, UNWRITTEN_WITH_ORNAMENTS = 0.8, 0.6
"""Onset probabilities above which an unwritten onset may have been played. Without ornaments,
nearly all of the model's false notes stay below the first, and most below the second."""
SUPPORT = 0.6  # smallest fraction of nearby notes that are heard; below it, the alignment is lost
SUPPORT_S = 1.5  # time before and after that counts as nearby

BOTH = FRAME_UNKNOWN | ONSET_UNKNOWN
ALL_PITCHES = -1


def release_s(aligned: Aligned) -> float:
    """How long a note may sound after its written end."""
    return RINGING_RELEASE_S if aligned.ringing >= RINGING else RELEASE_S


def unknown(aligned: Aligned, signs_s: F64, ornamented: bool) -> F64:
    """Everything that the score leaves open, to be masked in the loss.

    Rows are as in ``Rendered.unknown``, [n, 4]: begin and end in seconds, pitch (-1: all), and what
    is unknown.

    Args:
        signs_s: [k], score times of ornament signs that the score does not play out.
        ornamented: whether the player adds notes.
    """
    least = UNWRITTEN_WITH_ORNAMENTS if ornamented else UNWRITTEN
    at_s, pitch, _ = aligned.unwritten[aligned.unwritten[:, 2] >= least].T
    parts = [
        _doubtful(aligned),
        _releases(aligned),
        *(_ornament(aligned, sign_s) for sign_s in aligned.time_map(signs_s)),
        rows(at_s - NEAR_S, at_s + release_s(aligned), pitch, BOTH),
        _astray(aligned),
    ]
    return np.concatenate(parts)


def rows(begin_s: F64, end_s: F64, pitch: NDArray | int, what: int) -> F64:
    """Rows of ``Rendered.unknown``."""
    columns = np.broadcast_arrays(begin_s, end_s, pitch, what)
    return np.stack(columns, axis=1).astype(np.float64)


def _doubtful(aligned: Aligned) -> F64:
    notes = aligned.notes.where(aligned.confidence < DOUBT)
    begin_s, end_s = notes.onset - NEAR_S, notes.offset + release_s(aligned)
    onset = rows(begin_s, notes.onset + NEAR_S, notes.pitch, ONSET_UNKNOWN)
    return np.concatenate([onset, rows(begin_s, end_s, notes.pitch, FRAME_UNKNOWN)])


def _releases(aligned: Aligned) -> F64:
    """From the earliest key release until the sound is gone or the pitch begins again."""
    notes = aligned.notes
    again_s = np.append(notes.onset, np.inf)[next_strokes(notes.pitch, notes.onset)]
    begin_s = notes.onset + HELD * (notes.offset - notes.onset)
    end_s = np.minimum(notes.offset + release_s(aligned), again_s)
    return rows(begin_s, end_s, notes.pitch, FRAME_UNKNOWN)


def _ornament(aligned: Aligned, at_s: float) -> F64:
    """Pitches near the notes at a sign, for the duration of the notes."""
    notes = aligned.notes.where(np.abs(aligned.notes.onset - at_s) < NEAR_S)
    steps = np.arange(-ORNAMENT_PITCHES, ORNAMENT_PITCHES + 1)
    pitch = np.clip(notes.pitch[:, None] + steps, 0, PITCHES - 1).ravel()
    begin_s = np.repeat(notes.onset - 2 * NEAR_S, len(steps))
    end_s = np.repeat(notes.offset + release_s(aligned), len(steps))
    return rows(begin_s, end_s, pitch, BOTH)


def _astray(aligned: Aligned) -> F64:
    """Parts in which the model hears few of the written notes."""
    onset_s = aligned.notes.onset
    heard = np.concatenate([[0], np.cumsum(aligned.heard)])
    first = np.searchsorted(onset_s, onset_s - SUPPORT_S)
    last = np.searchsorted(onset_s, onset_s + SUPPORT_S, side="right")
    poor = onset_s[(heard[last] - heard[first]) / (last - first) < SUPPORT]
    return rows(poor - SUPPORT_S, poor + SUPPORT_S, ALL_PITCHES, BOTH)


logger = logging.getLogger(__name__)

MODEL = "live"  # shipped weights, so no other system's output enters training
CACHE_VERSION = 3


def prepare(root: Path, entries: Sequence[tuple[dict[str, Any], Path]]) -> None:
    """Aligns each index entry below ``root`` and writes it to its cache folder. Raises ValueError
    for audio, scores and alignments that cannot be read."""
    with LocalComputer(load(MODEL)) as computer:
        for entry, place in entries:
            audio, score = root / entry["audio"], root / entry["score"]
            aligned = align_files(audio, score, computer)
            logger.info("aligned %s: %.1f %% heard", entry["id"], 100 * aligned.heard.mean())
            replace_file(place / "labels.npz", partial(np.savez, **vars(aligned)))


@dataclass(frozen=True)
class ScoredRecording:
    """A recording with labels from its score."""

    name: str
    audio: NDArray[np.int16]  # [samples] at the model's rate, PCM_SCALE at full scale
    notes: Notes  # velocity 0 means unknown
    unknown: F64  # as in ``Rendered``
    approximate: bool = False
    """Whether ``unknown`` covers the edges of all notes, as they are only nearly right."""

    def part(
        self, begin: int, length: int, speed: float = 1.0, semitones: int = 0
    ) -> tuple[F32, Notes, F64]:
        """``length`` samples, -1..1, and what sounds and is unknown if they are played at this
        speed, so many semitones higher; times count from their beginning."""
        begin_s, length_s = begin / SAMPLE_RATE, length / SAMPLE_RATE / speed
        audio = self.audio[begin : begin + length].astype(np.float32) / np.float32(PCM_SCALE)
        notes, doubts = self.notes, self.unknown.copy()
        onset, offset = (notes.onset - begin_s) / speed, (notes.offset - begin_s) / speed
        pitch = notes.pitch + np.int16(semitones)
        inside = (offset > 0) & (onset < length_s) & (pitch >= 0) & (pitch < PITCHES)
        doubts[:, :2] = (doubts[:, :2] - begin_s) / speed
        one = doubts[:, 2] != ALL_PITCHES
        doubts[one, 2] = np.clip(doubts[one, 2] + semitones, 0, PITCHES - 1)
        notes = notes.moved(onset=onset, offset=offset, pitch=pitch).where(inside)
        return audio, notes, doubts[(doubts[:, 1] > 0) & (doubts[:, 0] < length_s)]


def load_recordings(
    root: Path, cache: Path, split: str, left_out: tuple[str, ...] = ()
) -> list[ScoredRecording]:
    """The recordings of a split that have a score, in index order.

    Args:
        left_out: recordings that are not used, by ID.

    Raises:
        ValueError: the index or a file is invalid.
        OSError: the index is missing.
    """
    entries = [
        (entry, cache / _key(root, entry))
        for entry in json.loads((root / "index.json").read_bytes())
        if entry.get("score") and entry.get("split", "train") == split
        if entry["id"] not in left_out
    ]
    missing = [(entry, place) for entry, place in entries if not (place / "labels.npz").exists()]
    if missing:
        prepare(root, missing)
    return [_load(root, entry, place) for entry, place in entries]


def _key(root: Path, entry: dict[str, Any]) -> str:
    """The cache folder of a recording."""
    digest = hashlib.sha256(str(CACHE_VERSION).encode())
    for kind in ("audio", "score"):
        digest.update((root / entry[kind]).read_bytes())
    return f"scored-{entry['id']}-{digest.hexdigest()[:12]}"


def _load(root: Path, entry: dict[str, Any], place: Path) -> ScoredRecording:
    with np.load(place / "labels.npz") as stored:
        aligned = Aligned(**stored)
    # The class of a soloist; -1 for several players or other instruments.
    words = str(entry.get("instruments", "")).lower()
    solo = next((n for n, name in enumerate(INSTRUMENTS) if words.startswith(f"solo {name}")), -1)
    notes = notes_of(aligned.onset, aligned.offset, aligned.pitch, instrument=solo)
    signs = root / "ornaments" / f"{entry['id']}.tsv"
    signs_s = _signs(signs) if signs.exists() else np.zeros(0)
    ornamented = bool(entry.get("ornaments", len(signs_s) > 0))
    doubts = unknown(aligned, signs_s, ornamented)
    audio = stored_audio(root / entry["audio"], place.parent)
    return ScoredRecording(entry["id"], audio, notes, doubts)


def _signs(path: Path) -> F64:
    """Score times in the first column, below a header line."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return np.array([float(line.split("\t")[0]) for line in lines if line.strip()])
