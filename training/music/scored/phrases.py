"""Clips of one known instrument each, without labels of notes: for the instrument heads alone.

``phrases.json`` lists ``file``, ``class`` and ``upstream_split``. The shipped weights ``live`` say
where notes begin; who plays them is known, and everything else is masked in the loss.
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, INSTRUMENTS, SAMPLE_RATE
from model.storage import load, replace_file
from service.engine.local import LocalComputer
from service.notes.base_tracker import peaks
from service.stream.recording import transcribe_array
from training.music.notes import notes_of
from training.music.recordings import PCM_SCALE
from training.music.scored.corpus import ALL_PITCHES, BOTH, MODEL, ScoredRecording, rows
from training.music.scored.labelled import stored_audio

HEARD = 0.4
"""Onset probability of a note."""
SOUNDS_S = 0.3
"""Length given to the notes, which no loss sees."""
KEPT_OUT = ("validation", "test")
"""Splits of the sources that are not trained on."""
CACHE_VERSION = 1


def load_phrases(root: Path, cache: Path) -> list[ScoredRecording]:
    """The clips to train on; none if the index is missing. Raises ValueError or OSError for files
    that cannot be read."""
    index = root / "phrases.json"
    if not index.exists():
        return []
    entries = [e for e in json.loads(index.read_bytes()) if e.get("upstream_split") not in KEPT_OUT]
    key = hashlib.sha256(index.read_bytes() + bytes([CACHE_VERSION])).hexdigest()[:12]
    place = cache / f"phrases-{key}.npz"
    audio = {entry["file"]: stored_audio(root / entry["file"], cache) for entry in entries}
    if not place.exists():
        with LocalComputer(load(MODEL)) as computer:
            found: dict[str, Any] = {
                name: _onsets(computer, sound) for name, sound in audio.items()
            }
        replace_file(place, partial(np.savez, **found))
    with np.load(place) as stored:
        onsets = {name: stored[name] for name in audio}
    clips = []
    for entry in entries:
        sound, (onset, pitch) = audio[entry["file"]], onsets[entry["file"]]
        notes = notes_of(onset, onset + SOUNDS_S, pitch)
        number = np.full(len(notes), INSTRUMENTS.index(entry["class"]), np.int8)
        length_s = np.array([len(sound) / SAMPLE_RATE])
        doubts = rows(np.zeros(1), length_s, ALL_PITCHES, BOTH)
        name = Path(entry["file"]).stem
        clips.append(ScoredRecording(name, sound, notes.moved(instrument=number), doubts))
    return clips


def _onsets(computer: LocalComputer, audio: NDArray[np.int16]) -> NDArray[np.float64]:
    """[2, n], seconds and pitches at which notes begin."""
    samples = audio.astype(np.float32) / np.float32(PCM_SCALE)
    heard = transcribe_array(samples, SAMPLE_RATE, computer).probabilities
    frame, pitch = peaks(heard[computer.config.heads.index("onset")], 1, HEARD).nonzero()
    return np.stack([frame * HOP / SAMPLE_RATE, pitch])
