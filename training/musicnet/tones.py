"""Windows of made-up tones, for a first try without any data.

Up to five tones of a few partials at random pitches, moments and lengths. A filterbank network
finds them within a minute; nothing learned from them is of use for music.
"""

from collections.abc import Generator
from itertools import count

import numpy as np

from model.config import WINDOW
from training.arrays import Rng
from training.music.notes import notes_of
from training.music.synth.dataset import Batch, empty_batch
from training.music.targets import segment_labels

PITCHES = range(48, 84)
PARTIALS = np.arange(1, 5)
DECAY_PER_S = 3.0


def tone_batch(rng: Rng, size: int, rate: int, context: int = 0) -> Batch:
    """Windows with their labels; silence in the ``context`` samples before them."""
    batch = empty_batch(size, context)
    time_s = np.arange(WINDOW) / rate
    for row in range(size):
        tones = int(rng.integers(1, 6))
        pitch = rng.choice(PITCHES, tones, replace=False)
        onset = np.sort(rng.uniform(0, time_s[-1], tones))
        offset = onset + rng.uniform(0.1, 0.5, tones)
        for number, begin, end in zip(pitch, onset, offset, strict=True):
            sounding = (time_s >= begin) & (time_s < end)
            since = time_s[sounding] - begin
            turns = np.outer(PARTIALS, since) * 440 * 2 ** ((number - 69) / 12)
            tone = (np.sin(2 * np.pi * turns) / PARTIALS[:, None]).sum(axis=0)
            batch.audio[row, context:][sounding] += 0.1 * np.exp(-DECAY_PER_S * since) * tone
        labels = segment_labels(notes_of(onset, offset, pitch), rate)
        for target, label in zip(batch.targets, labels, strict=True):
            target[row] = label
    return batch


def tone_stream(
    size: int, rate: int, context: int, seed: int, step: int
) -> Generator[Batch, None, None]:
    """Endless batches, a function of seed and step."""
    return (
        tone_batch(np.random.default_rng((seed, at)), size, rate, context) for at in count(step)
    )
