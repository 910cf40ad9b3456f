"""Training excerpts of real recordings."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import soxr

from model.config import PITCHES
from training.music.recordings import PCM_SCALE
from training.music.scored.corpus import ScoredRecording
from training.music.scored.masks import ALL_PITCHES
from training.music.synth.acoustics.augment import augment
from training.music.synth.acoustics.surroundings import NOWHERE, Surroundings
from training.music.synth.config import RecordingConfig
from training.music.synth.render import Rendered

SEMITONES = (-2, -1, 0, 0, 0, 1, 2)
"""Transpositions, which also change the tempo, as on tape."""
CENTS = 25.0
"""Largest additional detuning."""
SECOND_ROOM = 0.15
"""Room probability relative to rendered excerpts, as recordings already have a room."""


def recorded_excerpt(
    recordings: Sequence[ScoredRecording],
    seconds: float,
    sample_rate: int,
    config: RecordingConfig,
    rng: np.random.Generator,
    surroundings: Surroundings = NOWHERE,
) -> Rendered:
    """An augmented excerpt of one of the recordings, chosen in proportion to length.

    If a recording is shorter than ``seconds``, the excerpt is all of it.
    """
    lengths = np.array([len(recording.audio) for recording in recordings], float)
    recording = recordings[int(rng.choice(len(recordings), p=lengths / lengths.sum()))]
    semitones = int(rng.choice(SEMITONES))
    speed = 2 ** ((semitones + rng.uniform(-CENTS, CENTS) / 100) / 12)
    span = min(len(recording.audio), int(seconds * speed * sample_rate))
    begin = int(rng.integers(len(recording.audio) - span + 1))
    source = recording.audio[begin : begin + span].astype(np.float32) / PCM_SCALE
    audio = soxr.resample(source, speed * sample_rate, sample_rate)
    length_s = len(audio) / sample_rate
    notes = recording.notes
    begin_s = begin / sample_rate
    onset, offset = (notes.onset - begin_s) / speed, (notes.offset - begin_s) / speed
    pitch = notes.pitch + np.int16(semitones)
    notes = notes.moved(onset=onset, offset=offset, pitch=pitch)
    inside = (offset > 0) & (onset < length_s) & (pitch >= 0) & (pitch < PITCHES)
    doubts = recording.unknown.copy()
    doubts[:, :2] = (doubts[:, :2] - begin_s) / speed
    one = doubts[:, 2] != ALL_PITCHES
    doubts[one, 2] = np.clip(doubts[one, 2] + semitones, 0, PITCHES - 1)
    lighter = replace(config, room=SECOND_ROOM * config.room)
    return Rendered(
        augment(audio, sample_rate, rng, lighter, surroundings),
        notes.where(inside),
        unknown=doubts[(doubts[:, 1] > 0) & (doubts[:, 0] < length_s)],
    )
