"""Batches of training windows, rendered by worker processes during training.

Each worker has a pool of excerpts and fills a batch with windows of randomly chosen excerpts. It
replaces an excerpt once all windows of the excerpt have been used. Worker k seeds its generator
with (seed, k), and the consumer takes batches from the workers in turn. The configuration, the
seed, the batch size and the number of workers therefore determine the stream of batches.
"""

import atexit
import os
import signal
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from model.config import FRAMES, HOP, PITCHES, SAMPLE_RATE, WINDOW
from training.arrays import F32, Rng
from training.music.synth.config import SynthConfig
from training.music.synth.excerpts import load_sources, training_excerpt
from training.music.synth.render import REFERENCE_VELOCITY, Rendered, Voice
from training.music.targets import PEDAL_UNKNOWN, VELOCITY_SCALE, Targets, segment_labels

DYNAMIC_DB = Voice.dynamic_db
TYPICAL_DB = -10.0
"""Level of a passage with mean velocity REFERENCE_VELOCITY whose velocities stay unchanged."""
_BLOCK = int(0.1 * SAMPLE_RATE)  # number of samples over which the level is averaged


def relative_velocities(audio: F32, velocity: F32) -> F32:
    """Scale velocities, [notes], to the level of an excerpt. The results are 1 to 127, or 0 for
    unknown velocities. The gain of a recording is unknown, so a short window shows only how loud a
    note is in the recording, not how it was played. Scaling preserves differences in dB."""
    has_velocity = velocity > 0
    count = len(audio) // _BLOCK
    if not has_velocity.any() or not count:
        return velocity
    power = np.square(audio[: count * _BLOCK].reshape(count, _BLOCK)).mean(axis=1)
    loud = float(np.percentile(power, 90))  # not the mean, because music has rests
    level_db = 10 * np.log10(max(loud, 1e-12))
    played_db = DYNAMIC_DB * np.log10(float(velocity[has_velocity].mean()) / REFERENCE_VELOCITY)
    factor = 10 ** ((level_db - played_db - TYPICAL_DB) / DYNAMIC_DB)
    relative = np.clip(velocity * factor, 1, VELOCITY_SCALE)
    return np.where(has_velocity, relative, 0).astype(np.float32)


class Batch(NamedTuple):
    """Windows of audio and their targets."""

    audio: F32  # [B, context + WINDOW], -1..1
    targets: Targets[NDArray[np.uint8]]  # [B, FRAMES, ...]


class Excerpt:
    """An excerpt's audio and the targets of all its frames, from which windows are cut. Windows
    start ``phase`` samples after a multiple of HOP. Context before the excerpt is silent, and
    silence extends an excerpt that is shorter than a window."""

    def __init__(self, rendered: Rendered, rng: Rng) -> None:
        self.phase = int(rng.integers(HOP))  # random, so that notes start anywhere in a hop
        audio = rendered.audio[self.phase :]
        self.audio = np.pad(audio, (0, max(0, WINDOW - len(audio))))
        frames = len(self.audio) // HOP
        self.positions = frames - WINDOW // HOP + 1  # number of hops at which a window can start
        velocity = relative_velocities(rendered.audio, rendered.notes.velocity)
        notes, uncertain = rendered.notes.replaced(velocity=velocity), rendered.unknown
        self.labels = segment_labels(
            notes, SAMPLE_RATE, self.phase, frames, rendered.pedal, uncertain
        )

    def write(self, hop: int, batch: Batch, row: int) -> None:
        """Copy the window that starts at hop ``hop`` of the excerpt to a row of ``batch``."""
        end = hop * HOP + WINDOW
        audio = self.audio[max(0, end - batch.audio.shape[1]) : end]
        batch.audio[row] = 0
        batch.audio[row, -len(audio) :] = audio
        for target, label in zip(batch.targets, self.labels, strict=True):
            target[row] = label[hop : hop + FRAMES]


def empty_batch(size: int, context: int = 0) -> Batch:
    """Return a batch of ``size`` windows with ``context`` samples before each. All values are 0,
    except that the pedal is unknown."""
    targets = {name: np.zeros((size, FRAMES, PITCHES), np.uint8) for name in Targets._fields}
    targets["pedal"] = np.full((size, FRAMES), PEDAL_UNKNOWN, np.uint8)
    return Batch(np.zeros((size, context + WINDOW), np.float32), Targets(**targets))


def generate_batches(
    config: SynthConfig, batch_size: int, context: int, seed: int | list[int]
) -> Iterator[Batch]:
    """Yield batches without end, rendered in this process. For ``context`` see ``empty_batch``."""
    rng = np.random.default_rng(seed)
    sources = load_sources(config, "train")
    pool: list[tuple[Excerpt, list[int]]] = []  # excerpts and start hops of their windows
    is_first = True
    while True:
        batch = empty_batch(batch_size, context)
        for row in range(batch_size):
            while len(pool) < (1 if row else config.pool_excerpts):
                excerpt = Excerpt(training_excerpt(sources, config, rng), rng)
                count = max(1, round(len(excerpt.audio) / SAMPLE_RATE / 0.35))  # one per 0.35 s
                if is_first:  # random, so that the first excerpts are not used up at the same time
                    count = int(rng.integers(1, count + 1))
                pool.append((excerpt, rng.integers(0, excerpt.positions, count).tolist()))
            is_first = False
            chosen = int(rng.integers(len(pool)))
            excerpt, hops = pool[chosen]
            excerpt.write(hops.pop(), batch, row)
            if not hops:
                pool[chosen] = pool[-1]
                pool.pop()
            if rng.random() < 0.04:
                silence_edge(batch, row, rng)
        yield batch


def silence_edge(batch: Batch, row: int, rng: Rng) -> None:
    """Make a window start before its stream or end after it: clear audio and targets outside."""
    cut = int(rng.integers(WINDOW))
    # Number of frames that describe samples before the cut; frame i describes HOP * (i + 1).
    frames = max(0, -(-cut // HOP) - 1)
    at = cut - WINDOW  # counted from the end, because context may precede the window
    before = rng.random() < 0.5
    batch.audio[row, slice(at) if before else slice(at, None)] = 0
    part = slice(frames) if before else slice(frames, None)
    for name, target in batch.targets._asdict().items():
        target[row, part] = PEDAL_UNKNOWN if name == "pedal" else 0


class _Batches(IterableDataset[Batch]):
    """The batches of one worker, or of this process."""

    def __init__(self, config: SynthConfig, batch_size: int, context: int, seed: int) -> None:
        self._arguments, self._seed = (config, batch_size, context), seed

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        return generate_batches(*self._arguments, [self._seed, worker.id if worker else 0])


def _prepare_worker(worker: int) -> None:
    # Workers ignore signals to the process group, so that the consumer can save its state first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    atexit.register(os._exit, 0)  # threads of libraries may abort a normal exit


def synth_stream(
    config: SynthConfig, batch_size: int, context: int, workers: int, seed: int
) -> Generator[Batch, None, None]:
    """Return an endless stream of training batches from worker processes, or from this process if
    ``workers`` is 0. Workers exit when the stream is closed. The stream re-raises their exceptions,
    and raises RuntimeError if a worker dies. Workers are spawned, so a script that uses them needs
    the guard ``if __name__ == "__main__"``."""
    # Decode the bank here. Otherwise all workers would decode it at the same time.
    load_sources(config, "train")
    loader = DataLoader(
        _Batches(config, batch_size, context, seed),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        multiprocessing_context="spawn" if workers else None,
        worker_init_fn=_prepare_worker,
        pin_memory=torch.cuda.is_available(),  # so that batches are copied while the GPU computes
        generator=torch.Generator(),  # without it, the loader would draw from the global generator
    )
    # The loader turns arrays into tensors to send them in shared memory.
    return (
        Batch(audio.numpy(), Targets(*(target.numpy() for target in targets)))
        for audio, targets in loader
    )
