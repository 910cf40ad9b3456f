"""Batches of training windows, rendered by worker processes during training.

Each worker keeps a pool of excerpts and fills a batch with windows of random ones, so the windows
of a batch are unrelated; a used-up excerpt is replaced. The batches of worker k depend only on
(seed, k), and the consumer takes from the workers in turn: configuration, seed, batch size and
number of workers determine a stream.
"""

from __future__ import annotations

import multiprocessing
import queue
import signal
import time
import traceback
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import FRAMES, HOP, PITCHES, WINDOW
from training.music.synth.config import SynthConfig
from training.music.synth.excerpts import load_material, training_excerpt
from training.music.synth.labels import PEDAL_UNKNOWN, Targets, segment_labels
from training.music.synth.render import Rendered

POLL_S = 0.2
JOIN_S = 5.0


class Batch(NamedTuple):
    """Windows and their ``labels.Targets``, [B, FRAMES, PITCHES]; pedal [B, FRAMES]."""

    audio: NDArray[np.float32]
    """[B, context + WINDOW], -1..1"""
    frame: NDArray[np.uint8]
    onset: NDArray[np.uint8]
    velocity: NDArray[np.uint8]
    offset: NDArray[np.uint8]
    instrument: NDArray[np.uint8]
    pedal: NDArray[np.uint8]
    frame_unknown: NDArray[np.uint8]
    onset_unknown: NDArray[np.uint8]


class Excerpt:
    """A rendered excerpt with the targets of all its frames; windows are slices of both.

    Windows begin ``phase`` samples after a multiple of HOP, with a phase drawn for each excerpt.
    Before the excerpt there is silence.
    """

    def __init__(self, rendered: Rendered, sample_rate: int, rng: np.random.Generator) -> None:
        self.phase = int(rng.integers(HOP))
        self.audio = rendered.audio[self.phase :]
        self.frames = len(self.audio) // HOP
        self.labels = segment_labels(
            rendered.notes,
            sample_rate,
            self.phase,
            self.frames,
            rendered.pedal,
            rendered.unknown,
        )

    @property
    def positions(self) -> int:
        """Number of hops at which a window can begin."""
        return self.frames - WINDOW // HOP + 1

    def write(self, hop: int, batch: Batch, row: int) -> None:
        """Copy the window that begins ``hop`` hops into the excerpt to a row of ``batch``."""
        end = hop * HOP + WINDOW
        heard = self.audio[max(0, end - batch.audio.shape[1]) : end]
        batch.audio[row] = 0
        batch.audio[row, -len(heard) :] = heard
        for target, label in zip(batch[1:], self.labels, strict=True):
            target[row] = label[hop : hop + FRAMES]


def empty_batch(size: int, context: int = 0) -> Batch:
    """Zeroed arrays for ``size`` windows with ``context`` samples before each."""
    targets = {name: np.zeros((size, FRAMES, PITCHES), np.uint8) for name in Targets._fields}
    targets["pedal"] = np.full((size, FRAMES), PEDAL_UNKNOWN, np.uint8)
    return Batch(np.zeros((size, context + WINDOW), np.float32), **targets)


def generate_batches(
    config: SynthConfig, batch_size: int, seed: int | list[int]
) -> Iterator[Batch]:
    """Endless training batches, made in this process."""
    rng = np.random.default_rng(seed)
    material = load_material(config, "train")
    rate = material.bank.sample_rate
    pool: list[tuple[Excerpt, list[int]]] = []
    starting = True
    while True:
        while len(pool) < config.pool_excerpts:
            excerpt = Excerpt(training_excerpt(material, config, rng), rate, rng)
            wanted = max(1, round(len(excerpt.audio) / rate / config.seconds_per_window))
            if starting:  # otherwise all first excerpts would be used up at once
                wanted = int(rng.integers(1, wanted + 1))
            pool.append((excerpt, rng.integers(0, excerpt.positions, wanted).tolist()))
        starting = False
        batch = empty_batch(batch_size, config.context)
        for row in range(batch_size):
            if not pool:
                excerpt = Excerpt(training_excerpt(material, config, rng), rate, rng)
                pool.append((excerpt, rng.integers(0, excerpt.positions, 1).tolist()))
            chosen = int(rng.integers(len(pool)))
            excerpt, hops = pool[chosen]
            excerpt.write(hops.pop(), batch, row)
            if not hops:
                pool[chosen] = pool[-1]
                pool.pop()
            if rng.random() < config.edge_probability:
                silence_edge(batch, row, rng)
        yield batch


def silence_edge(batch: Batch, row: int, rng: np.random.Generator) -> None:
    """Makes a window begin before its stream or end after it: zeros and empty targets."""
    cut = int(rng.integers(WINDOW))
    # Frame i describes sample HOP * (i + 1): so many frames describe samples before the cut.
    frames = max(0, -(-cut // HOP) - 1)
    at = cut - WINDOW  # from the end: context may lie before the window
    silent = empty_batch(1)
    before = rng.random() < 0.5
    if before:
        batch.audio[row, :at] = 0
    else:
        batch.audio[row, at:] = 0
    for target, nothing in zip(batch[1:], silent[1:], strict=True):
        part = slice(0, frames) if before else slice(frames, FRAMES)
        target[row, part] = nothing[0, part]


def _work(config: SynthConfig, batch_size: int, seed: list[int], out: Any, stop: Event) -> None:
    """A worker process: batches, or the traceback of the error that ended them, into a queue."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the consumer handles Ctrl-C and saves first
    try:
        for batch in generate_batches(config, batch_size, seed):
            if not _put(out, tuple(batch), stop):
                return
    except BaseException:
        _put(out, traceback.format_exc(), stop)
    finally:
        if not _wanted(stop):
            out.cancel_join_thread()


def _wanted(stop: Event) -> bool:
    """Whether the stream is open and its consumer alive."""
    parent = multiprocessing.parent_process()
    return not stop.is_set() and (parent is None or parent.is_alive())


def _put(out: Any, item: Any, stop: Event) -> bool:
    """Queue an item unless the stream is closed or the consumer has died."""
    while _wanted(stop):
        try:
            out.put(item, timeout=POLL_S)
            return True
        except queue.Full:
            continue
    return False


class SynthStream:
    """Endless training batches from worker processes; an iterator and a context manager.

    Raises RuntimeError with the traceback of a worker that failed, or if one died silently.
    ``workers = 0`` makes the batches in this process. A script that uses workers needs the usual
    ``if __name__ == "__main__"`` guard, as they start with "spawn" by default.
    """

    def __init__(
        self,
        config: SynthConfig,
        batch_size: int,
        workers: int,
        seed: int | None = None,
        start_method: str = "spawn",
    ) -> None:
        if batch_size < 1 or workers < 0:
            raise ValueError("batch_size must be positive and workers not negative")
        root = config.seed if seed is None else seed
        self._closed = False
        self._turn = 0
        self._queues: list[Any] = []
        self._processes: list[BaseProcess] = []
        self._local = generate_batches(config, batch_size, [root, 0]) if workers == 0 else None
        if workers == 0:
            return
        context = multiprocessing.get_context(start_method)
        self._stop = context.Event()
        # Decode the bank once here: otherwise every worker would, at the same time.
        load_material(config, "train")
        for worker in range(workers):
            out = context.Queue(config.queue_batches)
            process = context.Process(  # type: ignore[attr-defined]
                target=_work,
                args=(config, batch_size, [root, worker], out, self._stop),
                name=f"synth-{worker}",
                daemon=True,
            )
            process.start()
            self._queues.append(out)
            self._processes.append(process)

    def __iter__(self) -> SynthStream:
        return self

    def __next__(self) -> Batch:
        if self._closed:
            raise StopIteration
        if self._local is not None:
            return next(self._local)
        worker = self._turn
        self._turn = (worker + 1) % len(self._queues)
        while True:
            try:
                item = self._queues[worker].get(timeout=POLL_S)
                break
            except queue.Empty:
                if not self._processes[worker].is_alive() and self._queues[worker].empty():
                    code = self._processes[worker].exitcode
                    self.close()
                    raise RuntimeError(f"synth worker {worker} died, exit code {code}") from None
        if isinstance(item, str):
            self.close()
            raise RuntimeError(f"synth worker {worker} failed:\n{item}")
        return Batch(*item)

    def close(self) -> None:
        """Stop the workers and wait for them; harmless when repeated."""
        if self._closed:
            return
        self._closed = True
        if not self._processes:
            return
        self._stop.set()
        deadline = time.monotonic() + JOIN_S
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join()
        for out in self._queues:
            out.close()
            out.cancel_join_thread()

    def __enter__(self) -> SynthStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()
