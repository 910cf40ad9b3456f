"""Aligns a score with a recording: notes with times and confidences."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.config import HOP
from service.engine.engine import Engine
from service.notes.onsets import peaks
from service.session.transcribe import transcribe_array
from training.music.label_tables import LabelError
from training.music.metrics import NoteList
from training.music.midi_labels import read_midi
from training.music.notes import nearest
from training.music.recordings import read_audio
from training.music.scored.coarse import warp
from training.music.scored.refine import FOUND, TOLERANCE_S, Aligned, refine
from training.music.scored.time_map import TimeMap, read_time_map

COLUMNS = ("onset_s", "offset_s", "pitch", "velocity", "confidence")


@dataclass(frozen=True)
class Activations:
    """A model's probabilities for a recording, (frames, PITCHES), ``frame_s`` apart."""

    sounding: NDArray[np.float32]
    onset: NDArray[np.float32]
    frame_s: float


def align(activations: Activations, score: NoteList, coarse: TimeMap | None = None) -> Aligned:
    """The score's notes moved to where they are heard.

    Starts from the coarse alignment and from a computed one, and keeps the result with more notes
    heard.
    """
    rough = [warp(score, activations.sounding, activations.onset, activations.frame_s)]
    if coarse is not None:
        rough.insert(0, coarse)
    return max(
        (refine(score, one, activations.onset, activations.frame_s) for one in rough),
        key=lambda aligned: aligned.heard.mean(),
    )


def align_files(
    audio: Path, score: Path, coarse: Path | None, engine: Engine
) -> tuple[Aligned, Activations]:
    """As ``align``. Raises AudioError or LabelError for unreadable files, a score without notes and
    a model without an onset head."""
    notes = read_midi(score)
    if not len(notes):
        raise LabelError(f"{score} has no notes")
    rough = read_time_map(coarse) if coarse else None
    samples, rate = read_audio(audio)
    heads = engine.config.heads
    if "onset" not in heads:
        raise LabelError(f"{engine.config.name} has no onset head, which alignment needs")
    heard = transcribe_array(samples, rate, engine).probabilities
    frame, onset = (heard[heads.index(head)] for head in ("frame", "onset"))
    activations = Activations(frame, onset, HOP / engine.config.sample_rate)
    return align(activations, notes, rough), activations


def unwritten(aligned: Aligned, activations: Activations) -> NDArray[np.float64]:
    """[n, 3]: second, pitch and probability of heard onsets that the score does not contain.

    Peaks of the onset probability of at least FOUND, further than twice the tolerance from every
    note of their pitch.
    """
    inner = activations.onset[1:-1]
    frame, pitch = peaks(activations.onset, 1, FOUND)[1:-1].nonzero()
    times_s = np.asarray((frame + 1) * activations.frame_s, np.float64)
    notes = aligned.notes
    near = nearest(notes.onset_s, notes.pitch, times_s, pitch, 2 * TOLERANCE_S) >= 0
    return np.stack([times_s, pitch, inner[frame, pitch]], axis=1)[~near]


def write_labels(path: Path, aligned: Aligned) -> None:
    """A TSV of COLUMNS with a heading, by onset, which ``training.evaluate`` reads as well."""
    notes = aligned.notes
    lines = [
        f"{onset:.4f}\t{offset:.4f}\t{pitch}\t{velocity}\t{confidence:.3f}"
        for onset, offset, pitch, velocity, confidence in zip(
            notes.onset_s,
            notes.offset_s,
            notes.pitch,
            notes.velocity,
            aligned.confidence,
            strict=True,
        )
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["\t".join(COLUMNS), *lines, ""]), encoding="utf-8")


def summary(aligned: Aligned) -> str:
    """How good an alignment is, in a line."""
    doubtful = int((aligned.confidence < FOUND).sum())
    return (
        f"{len(aligned.notes)} notes: {aligned.heard.mean():.1%} heard near their place, "
        f"{doubtful} in doubt (confidence below {FOUND:g})"
    )
