"""Loads real recordings for training and validation.

They have a score, labelled notes or a labelled instrument.

The file ``index.json`` of the recordings' folder is a list of entries. An entry has ``id``,
``audio``, ``split`` ("train", the default, or "validation"), ``instruments`` ("solo piano ...") and
one of these:

- ``score``: a MIDI file, and optionally ``ornaments`` (true if the performer adds notes). The
  shipped weights align the score with the recording. ``ornaments/ID.tsv`` lists the score times of
  ornament signs that the score does not write out. If it lists any, ``ornaments`` is true by
  default. The loss masks uncertain labels.
- ``labels``: a list with a table of notes (``recordings.read_table``), and ``label_kind``. The loss
  masks the edges of notes unless ``label_kind`` is "exact". ``instruments`` must contain a word of
  CLASSES, because other instruments have no share in the training excerpts.

Phrases are clips with a labelled instrument but no labelled notes. The file ``phrases.json`` in the
folder of the note bank lists their ``file``, ``class`` and ``upstream_split``. The shipped weights
detect their onsets. The loss uses only the instrument at these onsets.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS, PITCHES, SAMPLE_RATE
from model.instruments import UNKNOWN
from model.storage import load
from service.engine.local import LocalEngine
from service.notes.frames import peaks
from training.arrays import F32, F64
from training.music.aligner import RELEASE_S, Aligned, align_files, mapped
from training.music.notes import FRAME_S, FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, next_onsets, notes_of
from training.music.recordings import Pcm, digest, from_pcm, read_table, stored_arrays, stored_audio
from training.music.transcribe import transcribe_array

logger = logging.getLogger(__name__)

MODEL = "live"  # our own weights, so that training uses no output of other systems
ALIGNED_VERSION, PHRASES_VERSION = 4, 1  # versions of the cached files
LEFT_OUT = ("chopin_op10_12", "wtc1_bwv847_prelude")
"""IDs of recordings that are not used, because their scores differ from what is played."""
CLASSES = {"guitar": "plucked", "voice": "voice"}
"""Instrument class of a labelled soloist, by a word that the entry's ``instruments`` contains."""


@dataclass(frozen=True)
class RealRecording:
    """A recording and its labels."""

    name: str
    audio: Pcm  # [samples] at SAMPLE_RATE, PCM_SCALE at full scale
    notes: Notes  # velocity 0 means unknown
    unknown: F64  # uncertain regions, as in ``Rendered``
    approximate: bool = False
    """True if the labelled times are inexact. ``unknown`` then covers the edges of all notes."""

    def part(
        self, begin: int, length: int, speed: float = 1.0, semitones: int = 0
    ) -> tuple[F32, Notes, F64]:
        """Return ``length`` samples, -1..1, from sample ``begin``, with their notes and uncertain
        regions. All times count from ``begin``, as if the audio were played at ``speed``. All
        pitches are ``semitones`` higher. The samples themselves are not changed."""
        begin_s, length_s = begin / SAMPLE_RATE, length / SAMPLE_RATE / speed
        audio = from_pcm(self.audio[begin : begin + length])
        notes, uncertain = self.notes, self.unknown.copy()
        onset, offset = (notes.onset - begin_s) / speed, (notes.offset - begin_s) / speed
        pitch = notes.pitch + np.int16(semitones)
        inside = (offset > 0) & (onset < length_s) & (pitch >= 0) & (pitch < PITCHES)
        uncertain[:, :2] = (uncertain[:, :2] - begin_s) / speed
        has_pitch = uncertain[:, 2] != ALL_PITCHES
        uncertain[has_pitch, 2] = np.clip(uncertain[has_pitch, 2] + semitones, 0, PITCHES - 1)
        notes = notes.replaced(onset=onset, offset=offset, pitch=pitch).where(inside)
        return audio, notes, uncertain[(uncertain[:, 1] > 0) & (uncertain[:, 0] < length_s)]


def _entries(root: Path, split: str) -> list[dict[str, Any]]:
    """Read the entries of a split, except LEFT_OUT. Raises OSError if the index is missing."""
    index = json.loads((root / "index.json").read_bytes())
    entries = (entry for entry in index if entry["id"] not in LEFT_OUT)
    return [entry for entry in entries if entry.get("split", "train") == split]


def load_scored(root: Path, cache: Path, split: str) -> list[RealRecording]:
    """Load the recordings of a split that have a score, in index order. Raises ValueError or
    OSError for files that cannot be read."""
    entries = _entries(root, split)
    return [_scored(root, cache, entry) for entry in entries if entry.get("score")]


def _scored(root: Path, cache: Path, entry: dict[str, Any]) -> RealRecording:
    audio, score = root / entry["audio"], root / entry["score"]

    def compute_alignment() -> dict[str, Any]:
        with LocalEngine(load(MODEL)) as engine:
            aligned = align_files(audio, score, engine)
        logger.info("aligned %s: %.1f %% detected", entry["id"], 100 * aligned.detected.mean())
        return vars(aligned)

    key = digest(str(ALIGNED_VERSION).encode(), audio.read_bytes(), score.read_bytes())
    folder = cache / f"scored-{entry['id']}-{key}"
    aligned = Aligned(**stored_arrays(folder / "labels.npz", compute_alignment))
    # The class of a soloist. It is unknown for several performers and for other instruments.
    words = str(entry.get("instruments", "")).lower()
    solo = (n for n, name in enumerate(INSTRUMENTS) if words.startswith(f"solo {name}"))
    signs, signs_s = root / "ornaments" / f"{entry['id']}.tsv", np.zeros(0)
    if signs.exists():
        signs_s = np.loadtxt(signs, delimiter="\t", skiprows=1, usecols=0, ndmin=1)
    uncertain = uncertain_regions(aligned, signs_s, bool(entry.get("ornaments", len(signs_s))))
    notes = aligned.notes.played_by(next(solo, UNKNOWN))
    return RealRecording(entry["id"], stored_audio(audio, cache), notes, uncertain)


def load_labelled(root: Path, cache: Path, split: str) -> dict[str, list[RealRecording]]:
    """Load the labelled recordings of a split, in index order, by instrument class of the soloist.
    Raises ValueError or OSError for files that cannot be read, and ValueError for an instrument
    that is not one of CLASSES."""
    by_class: dict[str, list[RealRecording]] = {}
    for name, entry in _labelled_entries(root, split):
        by_class.setdefault(name, []).append(_labelled(root, cache, entry, name))
    return by_class


def singing_files(root: Path, split: str) -> list[Path]:
    """Return the audio files of the labelled voices in a split."""
    entries = _labelled_entries(root, split)
    return [root / entry["audio"] for name, entry in entries if name == "voice"]


def _labelled_entries(root: Path, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each labelled recording its soloist's instrument class and its entry. Raises
    ValueError for an instrument that is not one of CLASSES."""
    for entry in _entries(root, split):
        if entry.get("label_kind"):
            instruments = entry["instruments"]
            names = [name for word, name in CLASSES.items() if word in instruments.lower()]
            if not names:
                raise ValueError(
                    f"recording {entry['id']!r} has labels, but its instruments {instruments!r} "
                    f"contain none of the words {', '.join(CLASSES)}: remove it from the index"
                )
            yield names[0], entry


def load_singing(folder: Path, cache: Path) -> list[RealRecording]:
    """Load the recordings of ``singing.json`` with phone-aligned notes; none without the file."""
    index = folder / "singing.json"
    files = json.loads(index.read_bytes())["files"] if index.exists() else []
    entries = [
        {"id": Path(file["file"]).stem, "audio": file["file"], "labels": [file["labels"]]}
        for file in files
        if "HTS" in file["how"] or "phone-aligned" in file["how"]
    ]
    return [_labelled(folder, cache, entry, "voice") for entry in entries]


def _labelled(root: Path, cache: Path, entry: dict[str, Any], class_name: str) -> RealRecording:
    table = read_table(root / entry["labels"][0])
    number = INSTRUMENTS.index(class_name)
    notes = notes_of(table.onset, table.offset, table.pitch, instrument=number)
    exact = entry.get("label_kind") == "exact"
    uncertain = np.zeros((0, 4)) if exact else edges(notes)
    audio = stored_audio(root / entry["audio"], cache)
    return RealRecording(entry["id"], audio, notes, uncertain, approximate=not exact)


def load_phrases(root: Path, cache: Path) -> list[RealRecording]:
    """Load the phrases of the training split. Return none if ``phrases.json`` is missing. Raises
    ValueError or OSError for files that cannot be read."""
    index = root / "phrases.json"
    if not index.exists():
        return []
    held_out = "validation", "test"  # splits of the data sets that the clips come from
    entries = [e for e in json.loads(index.read_bytes()) if e.get("upstream_split") not in held_out]
    key = digest(index.read_bytes(), bytes([PHRASES_VERSION]))
    audio = {entry["file"]: stored_audio(root / entry["file"], cache) for entry in entries}

    def detect_onsets() -> dict[str, F64]:
        with LocalEngine(load(MODEL)) as engine:
            return {name: _onsets(engine, sound) for name, sound in audio.items()}

    onsets = stored_arrays(cache / f"phrases-{key}.npz", detect_onsets)
    clips = []
    for entry in entries:
        sound, (onset, pitch) = audio[entry["file"]], onsets[entry["file"]]
        number = INSTRUMENTS.index(entry["class"])
        notes = notes_of(onset, onset + 0.3, pitch, instrument=number)
        uncertain = rows(np.zeros(1), len(sound) / SAMPLE_RATE, ALL_PITCHES, BOTH)
        clips.append(RealRecording(Path(entry["file"]).stem, sound, notes, uncertain))
    return clips


def _onsets(engine: LocalEngine, audio: Pcm) -> F64:
    """Return the detected onsets, [2, n]: times in seconds and pitches."""
    transcription = transcribe_array(from_pcm(audio), SAMPLE_RATE, engine, heads=("onset",))
    frame, pitch = peaks(transcription.probabilities[0], 1, 0.4).nonzero()
    return np.stack([frame * FRAME_S, pitch])


BOTH = FRAME_UNKNOWN | ONSET_UNKNOWN
ALL_PITCHES = -1  # pitch of an uncertain region that covers all pitches
DOUBT = 0.25  # confidence below which the loss masks a note
NEAR_S = 0.1  # time masked on either side of an uncertain onset
HELD = 0.6  # fraction of the written duration for which the key is assumed to be held
RINGING_RELEASE_S = 4.0  # replaces RELEASE_S if the pedal is often down
RINGING = 0.12  # value of ``Aligned.ringing`` from which the pedal is assumed to be often down
UNWRITTEN, UNWRITTEN_WITH_ORNAMENTS = 0.8, 0.6
"""Probabilities from which an onset outside the score may have been played. The second threshold is
for performers who add notes. It excludes most false onsets, and the first excludes nearly all."""
SUPPORT = 0.6  # fraction of detected notes within SUPPORT_S below which the alignment is wrong
SUPPORT_S = 1.5
EDGE_S = 0.06  # time masked on either side of an inexact onset or offset, 1.5 times its error


def rows(begin_s: F64, end_s: F64 | float, pitch: NDArray | int, bits: int) -> F64:
    """Build rows of ``Rendered.unknown``, [n, 4]. bits: FRAME_UNKNOWN, ONSET_UNKNOWN or BOTH."""
    columns = np.broadcast_arrays(begin_s, end_s, pitch, bits)
    return np.stack(columns, axis=1).astype(np.float64)


def edges(notes: Notes) -> F64:
    """Return the uncertain regions of inexact labels, which surround onsets and offsets."""
    parts = []
    for step in (-1, 0, 1):  # singers slide into notes
        pitch = np.clip(notes.pitch + step, 0, PITCHES - 1)
        parts.append(rows(notes.onset - EDGE_S, notes.onset + EDGE_S, pitch, BOTH))
        parts.append(rows(notes.offset - EDGE_S, notes.offset + EDGE_S, pitch, FRAME_UNKNOWN))
    return np.concatenate(parts)


def uncertain_regions(aligned: Aligned, signs_s: F64, ornamented: bool) -> F64:
    """Return the regions in which the score does not determine the labels.

    Args:
        signs_s: score times of ornament signs that the score does not write out, [k].
        ornamented: true if the performer adds notes.
    """
    release_s = RINGING_RELEASE_S if aligned.ringing >= RINGING else RELEASE_S
    threshold = UNWRITTEN_WITH_ORNAMENTS if ornamented else UNWRITTEN
    at_s, pitch, _ = aligned.unwritten[aligned.unwritten[:, 2] >= threshold].T
    notes = aligned.notes
    doubtful = notes.where(aligned.confidence < DOUBT)
    # A release lasts from its earliest time until the sound has decayed or the pitch starts again.
    again_s = next_onsets(notes.pitch, notes.onset)
    release_start_s = notes.onset + HELD * (notes.offset - notes.onset)
    release_end_s = np.minimum(notes.offset + release_s, again_s)
    played_s = mapped(signs_s, aligned.score_s, aligned.audio_s)
    before_s, after_s = doubtful.onset - NEAR_S, doubtful.offset + release_s
    return np.concatenate(
        [
            rows(before_s, doubtful.onset + NEAR_S, doubtful.pitch, ONSET_UNKNOWN),
            rows(before_s, after_s, doubtful.pitch, FRAME_UNKNOWN),
            rows(release_start_s, release_end_s, notes.pitch, FRAME_UNKNOWN),
            *(_ornament(notes, sign_s, release_s) for sign_s in played_s),
            rows(at_s - NEAR_S, at_s + release_s, pitch, BOTH),
            _lost_alignment(aligned),
        ]
    )


def _ornament(notes: Notes, at_s: float, release_s: float) -> F64:
    """Return the uncertain regions of an ornament sign. They cover the pitches within two semitones
    of the notes at the sign, from 2 NEAR_S before these notes to the end of their release."""
    notes = notes.where(np.abs(notes.onset - at_s) < NEAR_S)
    steps = np.arange(-2, 3)
    pitch = np.clip(notes.pitch[:, None] + steps, 0, PITCHES - 1).ravel()
    begin_s = np.repeat(notes.onset - 2 * NEAR_S, len(steps))
    return rows(begin_s, np.repeat(notes.offset + release_s, len(steps)), pitch, BOTH)


def _lost_alignment(aligned: Aligned) -> F64:
    """Return the regions in which the model detects few of the written notes."""
    onset_s = aligned.onset
    detected = np.concatenate([[0], np.cumsum(aligned.detected)])
    start = np.searchsorted(onset_s, onset_s - SUPPORT_S)
    stop = np.searchsorted(onset_s, onset_s + SUPPORT_S, side="right")
    poor_s = onset_s[(detected[stop] - detected[start]) / (stop - start) < SUPPORT]
    return rows(poor_s - SUPPORT_S, poor_s + SUPPORT_S, ALL_PITCHES, BOTH)
