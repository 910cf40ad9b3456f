"""Fills the cache of ``training.music.scored.corpus`` with aligned recordings."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from model.storage import load, replace_file
from service.engine.engine import Engine
from training.music.metrics import NoteList
from training.music.notes import next_strokes
from training.music.recordings import PCM_SCALE, read_audio
from training.music.scored.aligner import Activations, activations_of, align, read_score, unwritten
from training.music.scored.masks import RELEASE_S
from training.music.scored.time_map import read_time_map

logger = logging.getLogger(__name__)

MODEL = "live"  # shipped weights, so no other system's output enters training


def prepare(root: Path, entries: Sequence[tuple[dict[str, Any], Path]]) -> None:
    """Aligns each index entry below ``root`` and writes it to its cache folder.

    Raises ValueError for audio, scores and alignments that cannot be read.
    """
    with Engine(load(MODEL)) as engine:
        for entry, place in entries:
            activations = activations_of(root / entry["audio"], engine)
            coarse = read_time_map(root / entry["coarse"]) if entry.get("coarse") else None
            aligned = align(activations, read_score(root / entry["score"]), coarse)
            logger.info("aligned %s: %.1f %% heard", entry["id"], 100 * aligned.heard.mean())
            notes = aligned.notes
            labels: dict[str, Any] = {
                "onset": notes.onset_s,
                "offset": notes.offset_s,
                "pitch": notes.pitch,
                "confidence": aligned.confidence,
                "heard": aligned.heard,
                "score_s": aligned.time_map.score_s,
                "audio_s": aligned.time_map.audio_s,
                "unwritten": unwritten(aligned, activations),
                "ringing": np.array(ringing(notes, activations)),
            }
            audio = model_audio(root / entry["audio"])
            replace_file(place / "audio.npy", partial(np.save, arr=audio))
            replace_file(place / "labels.npz", partial(np.savez, **labels))


def model_audio(path: Path) -> NDArray[np.int16]:
    """[samples] at the model's rate. Raises AudioError."""
    samples, rate = read_audio(path)
    resampled = soxr.resample(samples, rate, SAMPLE_RATE)
    return np.asarray(np.clip(np.rint(resampled * PCM_SCALE), -PCM_SCALE, PCM_SCALE), np.int16)


def ringing(notes: NoteList, activations: Activations) -> float:
    """Mean frame probability RELEASE_S after the end of notes whose pitch is not struck again
    before; 0 if there are none."""
    again_s = np.append(notes.onset_s, np.inf)[next_strokes(notes.pitch, notes.onset_s)]
    at_s = notes.offset_s + RELEASE_S
    frame = np.rint(at_s / activations.frame_s).astype(int)
    alone = (again_s > at_s + RELEASE_S / 2) & (frame < len(activations.sounding))
    values = activations.sounding[frame[alone], notes.pitch[alone]]
    return float(values.mean()) if len(values) else 0.0
