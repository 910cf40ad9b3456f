"""Training on the user's recordings without forgetting other music.

Some windows of each batch are labelled windows of the user's recordings. The others, a share of
KEPT_SHARE, keep the network from forgetting. They are rendered audio, or transposed variants of the
user's recordings, some of which are mixed with a second variant.

The targets of variants are the predictions of the initial weights (Li and Hoiem, "Learning without
Forgetting", 2016). The targets of rendered audio are the labels, mixed with these predictions for
all heads except instruments and pedal.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import count

import numpy as np
import soxr
import torch
from torch import Tensor

from model.config import SAMPLE_RATE
from training.arrays import F32, Rng, draw
from training.music.families import Passage, Windows, family_windows
from training.music.notes import joined
from training.music.real import RealRecording
from training.music.recordings import Pcm, from_pcm
from training.music.synth.augment import Degradation, Surroundings, augment
from training.music.synth.dataset import Batch, Excerpt, empty_batch, synth_stream
from training.music.synth.excerpts import recorded_excerpt
from training.music.synth.render import Rendered
from training.music.targets import Targets
from training.music_task import MusicConfig, MusicTask

KEPT_SHARE = 0.5  # share of the windows that keep the network from forgetting
EXCERPT_S = 4.0  # length of the excerpts from which windows are cut
WINDOWS_PER_EXCERPT = 2
FARTHEST_SEMITONES = 9.0  # maximum transposition of a variant
MIXED = 0.4  # share of the variants that are mixed with a second variant
OWN = "own recordings"


class FineTuneTask(MusicTask):
    """The transcription task on the user's recordings."""

    def __init__(
        self,
        config: MusicConfig,
        own: Sequence[RealRecording],
        others: Sequence[Pcm],
        validation: Sequence[Passage],
        rendered: bool,
    ) -> None:
        """Args:
        config: ``distillation.teacher`` names the initial weights.
        own: labelled recordings to train on.
        others: audio without labels, for variants, at SAMPLE_RATE.
        validation: passages of the user's recordings.
        rendered: True to render the other windows from ``config.synth``.
        """
        super().__init__(config)
        self._own, self._rendered = own, rendered
        self._audio = [*(recording.audio for recording in own), *others]
        self._passages = validation
        self._kept = round(KEPT_SHARE * config.batch_size)

    def batches(self, seed: int, step: int = 0) -> Generator[Batch, None, None]:
        """Yield batches without end. Without rendered audio they depend only on seed and step."""
        size, context = self.config.batch_size, self.config.model.context
        stream = None
        if self._rendered:
            config, workers = self.config.synth, self.config.workers
            stream = synth_stream(config, self._kept, context, workers, seed + step)
        try:
            for at in count(step):
                rng = np.random.default_rng((seed, at))
                own = empty_batch(size - self._kept, context)
                fill(own, rng, self._own_excerpt)
                if stream:
                    kept = next(stream)
                else:
                    kept = empty_batch(self._kept, context)
                    fill(kept, rng, self._variant)
                audio = np.concatenate([own.audio, kept.audio])
                both = zip(own.targets, kept.targets, strict=True)
                yield Batch(audio, Targets(*map(np.concatenate, both)))
        finally:
            if stream:
                stream.close()

    def _own_excerpt(self, rng: Rng) -> Rendered:
        return recorded_excerpt(self._own, EXCERPT_S, Degradation(), rng, Surroundings())

    def _variant(self, rng: Rng) -> Rendered:
        """Return a variant of one or two recordings, without labels."""
        sound = self._moved(rng)
        if rng.random() < MIXED:
            sound = sound + np.float32(rng.uniform(0.3, 1.2)) * self._moved(rng)
        return Rendered(augment(sound, rng), joined([]))

    def _moved(self, rng: Rng) -> F32:
        """Return a random excerpt at another speed and pitch, [samples], with an RMS of 1."""
        audio = draw(self._audio, [len(audio) for audio in self._audio], rng)
        speed = 2 ** (rng.uniform(-FARTHEST_SEMITONES, FARTHEST_SEMITONES) / 12)
        span = min(len(audio), int(EXCERPT_S * speed * SAMPLE_RATE))
        start = int(rng.integers(len(audio) - span + 1))
        part = from_pcm(audio[start : start + span])
        out = np.zeros(int(EXCERPT_S * SAMPLE_RATE), np.float32)
        sound = soxr.resample(part, speed * SAMPLE_RATE, SAMPLE_RATE)[: len(out)]
        out[: len(sound)] = sound / max(1e-9, float(np.sqrt(np.mean(np.square(sound)))))
        return out

    def targets(self, audio: Tensor, labels: Targets[Tensor]) -> Targets[Tensor]:
        """Return the labels of the user's recordings. In each batch, the windows that keep the
        network from forgetting come last. Their targets use the teacher's predictions."""
        assert self.teacher
        own = len(audio) - self._kept
        mix = self.teacher.mixed if self._rendered else self.teacher.replaced
        kept = mix(audio[own:], Targets(*(target[own:] for target in labels)))
        return Targets(*(torch.cat([a[:own], b]) for a, b in zip(labels, kept, strict=True)))

    def _held_out(self) -> Windows:
        return family_windows({OWN: self._passages}, self.config.model.context)


def fill(batch: Batch, rng: Rng, make_excerpt: Callable[[Rng], Rendered]) -> None:
    """Fill a batch with windows of new excerpts, WINDOWS_PER_EXCERPT of each."""
    row, size = 0, len(batch.audio)
    while row < size:
        excerpt = Excerpt(make_excerpt(rng), rng)
        for hop in rng.integers(0, excerpt.positions, WINDOWS_PER_EXCERPT)[: size - row].tolist():
            excerpt.write(hop, batch, row)
            row += 1
