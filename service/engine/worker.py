"""One core's share of an engine, in a process of its own.

Started by ``service.engine.processes``, which says why. Messages go through a socket; samples and
probabilities lie in memory that both processes map. The process ends when the socket is closed, so
it never outlives the service.
"""

import gc
import mmap
import pickle
import sys
import traceback
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import Tensor

from model.config import WINDOW
from model.transcriber import FeatureStream
from service.engine.batching import EngineSettings, Probabilities
from service.engine.interface import Runner
from service.engine.runners import runner_of

# Messages are plain tuples: instances of classes take pickle several times as long.
Task = tuple[int, int, int, int, int]
"""The number of a stream and of its windows, which lie one after the other in the shared memory;
how many of them, the first, only prepare the stream and are not answered; hops between them."""
Batch = tuple[list[Task], int, int, list[int]]
"""Tasks of different streams, start and stop of the positions at which all are read, and streams
that are closed or have missed windows."""
Answer = tuple[tuple[int, ...], list[str | None]]
"""The shape of the probabilities in the shared memory, after the windows, and the error of each
task; those that failed have no probabilities."""


class Worker:
    """The runner's streams by number, and the memory shared with the service."""

    def __init__(self, runner: Runner, memory: mmap.mmap, batch_windows: int) -> None:
        self._runner = runner
        self._streams: dict[int, FeatureStream] = {}
        values = np.frombuffer(memory, np.float32)
        self._windows, self._probabilities = values_of(values, batch_windows)

    def answer(self, batch: Batch) -> Answer:
        """Computes a batch. Raises what the model raises on the batch as a whole."""
        tasks, start, stop, forget = batch
        positions = slice(start, stop)
        for stream in forget:
            self._streams.pop(stream, None)
        rows: list[Tensor] = []
        errors: list[str | None] = []
        first = 0
        for stream, count, unread, new_hops, shift in tasks:
            windows = list(self._windows[first : first + count].copy())
            first += count
            try:
                features = self._streams.get(stream)
                if features is None:
                    features = self._streams[stream] = self._runner.open_stream(positions)
                rows += self._runner.rows(features, windows, new_hops, shift)[unread:]
                errors.append(None)
            except Exception as error:
                traceback.print_exc()
                self._streams.pop(stream, None)  # it may be half-way through
                errors.append(str(error))
        if not rows:
            return (0,), errors
        try:
            probabilities = self._runner.predict(rows, positions)
        except Exception:
            self._streams.clear()
            raise
        self._probabilities[: probabilities.size] = probabilities.ravel()
        return probabilities.shape, errors


def values_of(values: Probabilities, batch_windows: int) -> tuple[Probabilities, Probabilities]:
    """The shared memory's windows, [batch_windows, WINDOW], and the rest, flat."""
    windows, rest = np.split(values, [batch_windows * WINDOW])
    return windows.reshape(batch_windows, WINDOW), rest


def main() -> None:
    """Arguments: the inherited socket and memory file, and the windows that fit into it."""
    socket_fd, memory_fd, batch_windows = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # see ``Engine``
    service = Connection(socket_fd)
    try:
        runner = runner_of(pickle.loads(service.recv_bytes()))
        runner.plan(EngineSettings())  # first-time work
        worker = Worker(runner, mmap.mmap(memory_fd, 0), batch_windows)
        gc.freeze()
        service.send(None)  # ready
        while True:
            batch = service.recv()
            try:
                answer: Answer | str = worker.answer(batch)
            except Exception as error:
                traceback.print_exc()
                answer = str(error)
            service.send_bytes(pickle.dumps(answer))
    except (EOFError, OSError):
        return  # the service has ended
