"""``transcribe`` and ``Transcriber``: transcribe recordings with the pipeline of the service."""

import asyncio
import io
import os
import shutil
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from threading import Thread
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from model.config import HOP, PITCHES
from rse_transcribe.arguments import (
    Model,
    Rate,
    as_float,
    as_model,
    check_not_forked,
    float_format,
    instrument_names,
)
from rse_transcribe.standard_input import SPOOLED_BYTES
from rse_transcribe.transcription import Transcription
from service.audio.decode import SampleArray
from service.engine.load import WorkerConfig, available_cores, return_network
from service.engine.local import LocalEngine
from service.engine.runners import device_of
from service.protocol.command_line import counted
from service.protocol.options import FILE_OPTIONS
from service.stream.recording import TranscriptionResult, transcribe_recording
from service.stream.setup import describe_options
from service.stream.windows import InferenceEngine
from service.workers.pool import PROCESSES, WorkerPool

Recording = str | os.PathLike[str] | bytes | BinaryIO | ArrayLike | torch.Tensor

_BAR_AFTER_S = 1.0  # time after which the progress bar appears


class IncompleteError(ValueError):
    """A recording was not transcribed completely, usually because a part of it is corrupt.
    ``transcription`` has the notes of the rest."""

    def __init__(self, reason: object, transcription: Transcription) -> None:
        super().__init__(str(reason), transcription)  # the arguments that pickle preserves
        self.transcription = transcription

    def __str__(self) -> str:
        notes = counted(len(self.transcription.notes), "note")
        return f"{self.args[0]}; incomplete result: {notes}"


class Transcriber:
    """Transcribes several recordings like ``transcribe``, but loads the network only once.

        with Transcriber() as transcriber:
            for path in paths:
                transcriber.transcribe(path).save(path.with_suffix(".mid"))

    Threads may share a transcriber. Each process, started with ``spawn``, needs its own.
    """

    def __init__(
        self, *, model: Model = "live", device: str = "auto", worker_processes: int = 0
    ) -> None:
        """Raises ValueError if the weights are missing or corrupt or the device does not exist,
        EngineError or OSError if a process fails to start, and RuntimeError if this process was
        forked (see ``transcribe``).

        worker_processes: maximum number of processes. With 0 or 1, threads compute the recordings.
            On Linux and macOS, two or more processes compute them instead if the network runs on
            a CPU with several cores. They are faster, but need seconds to start and 0.2 GB each.
        """
        network = as_model(model, device)
        cores = available_cores()
        processes = min(worker_processes, cores) if PROCESSES else 0
        resources = ExitStack()
        if processes > 1 and device_of(network).type == "cpu":
            setup = WorkerConfig(partial(return_network, network), network.config.name, "cpu")
            pool = WorkerPool(setup, cores, processes)
            self._engine: InferenceEngine = resources.enter_context(running(pool))
        else:
            self._engine = resources.enter_context(LocalEngine(network))
        self._close = weakref.finalize(self, resources.close)

    def transcribe(
        self,
        recording: Recording,
        sample_rate: Rate | None = None,
        *,
        lookahead_ms: float = FILE_OPTIONS.lookahead_ms,
        instruments: str | Sequence[str] | None = None,
        tuning_hz: float | None = None,
        bends: bool = False,
        progress: bool = True,
    ) -> Transcription:
        """Transcribe a recording like the function ``transcribe``. Also raises RuntimeError if the
        transcriber is closed or this process was forked."""
        options = replace(
            FILE_OPTIONS,
            lookahead_ms=lookahead_ms,
            instruments=instrument_names(instruments),
            tuning_hz=tuning_hz,
            bends=bends,
        )
        if not self._close.alive:
            raise RuntimeError("the transcriber is closed")
        check_not_forked()
        config = self._engine.config
        frames = [np.zeros((0, PITCHES), np.float32)]
        result: TranscriptionResult | None = None
        incomplete: ValueError | None = None

        def on_frames(_: int, heads: NDArray[np.float32]) -> None:
            frames.append(heads[config.heads.index("frame")].copy())

        with (
            open_recording(recording, sample_rate) as source,
            progress_bar(source, progress) as bar,
        ):
            steps = transcribe_recording(source, self._engine, options, on_frames=on_frames)
            with closing(steps):
                try:
                    for step in steps:
                        result = step.result
                        if step.progress is not None and step.progress.fraction is not None:
                            bar.update(step.progress.fraction - bar.n)
                except ValueError as error:
                    if result is None:
                        raise
                    incomplete = error
        assert result is not None
        transcription = Transcription(
            result,
            np.concatenate(frames),
            config.sample_rate / HOP,
            describe_options(options, config),
        )
        if incomplete is not None:
            raise IncompleteError(incomplete, transcription) from incomplete
        return transcription

    def close(self) -> None:
        """Stop the threads and processes. Idempotent."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def transcribe(
    recording: Recording,
    sample_rate: Rate | None = None,
    *,
    model: Model = "live",
    lookahead_ms: float = FILE_OPTIONS.lookahead_ms,
    device: str = "auto",
    instruments: str | Sequence[str] | None = None,
    tuning_hz: float | None = None,
    bends: bool = False,
    progress: bool = True,
) -> Transcription:
    """Transcribe a recording. ``POST /transcribe`` returns the same notes for the same model and
    options.

    May be called from several threads. For several recordings a ``Transcriber`` is faster.

    Args:
        recording: path, binary file or bytes of an audio or video file; or samples of shape [n] or
            [n, channels]: an array or tensor of floats (full scale 1), int16, int32 or uint8 (128
            is silence), or a list of floats.
        sample_rate: integer sample rate of an array, 4,000 to 384,000 Hz. Ignored for files.
        model: name in ``available_models()``, path of a .safetensors file, or result of ``load``.
        lookahead_ms: duration of the audio that follows a frame and is used to predict it. It
            must be above 0. Other values outside 46 to 372 ms are limited to this range.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``. Ignored for a loaded network.
        instruments: names in ``model.config.INSTRUMENTS`` to which notes are assigned, as a
            sequence or a comma-separated string. None or empty means all.
        tuning_hz: frequency of A4, 380 to 480 Hz. None means to estimate it from the audio.
        bends: True to track the pitch within notes, for ``Note.bends``, MIDI and JSON.
        progress: True to show a progress bar in a terminal or a notebook after a second.

    Raises:
        OSError: the file cannot be opened.
        IncompleteError: a ValueError; part of the audio is corrupt.
        ValueError: the recording has no audio or an unsupported format; samples have another type
            or shape, or no sample rate; a file is in text mode; the weights are missing or corrupt;
            the device or an instrument does not exist; or a number is out of range.
        RuntimeError: the model failed, or this process was forked after its parent opened a
            transcriber or a stream.
    """
    with Transcriber(model=model, device=device) as transcriber:
        return transcriber.transcribe(
            recording,
            sample_rate,
            lookahead_ms=lookahead_ms,
            instruments=instruments,
            tuning_hz=tuning_hz,
            bends=bends,
            progress=progress,
        )


@contextmanager
def running(pool: WorkerPool) -> Iterator[WorkerPool]:
    """Run a pool in the event loop of a separate thread. Raises EngineError or OSError if a worker
    fails to start."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="workers", daemon=True)
    thread.start()
    starting = asyncio.run_coroutine_threadsafe(pool.start(), loop)
    try:
        starting.result()
        yield pool
    finally:
        starting.cancel()  # after a KeyboardInterrupt
        asyncio.run_coroutine_threadsafe(pool.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def progress_bar(recording: BinaryIO | SampleArray, enabled: bool = True) -> Any:
    """Return the progress bar of a recording, which is visible only in a terminal or notebook."""
    name = getattr(recording, "name", None)  # a number, or missing, if the file has no path
    terminal = sys.stderr is not None and sys.stderr.isatty()  # None in a windowed program
    shown = enabled and (terminal or "ipykernel" in sys.modules)
    return tqdm(
        desc=Path(os.fsdecode(name)).name if isinstance(name, str | bytes) else "recording",
        total=1.0,
        disable=not shown,
        delay=_BAR_AFTER_S,
        leave=False,
        bar_format="{desc} {percentage:3.0f}% |{bar}| {remaining} left",
    )


@contextmanager
def open_recording(
    recording: Recording, sample_rate: Rate | None
) -> Iterator[BinaryIO | SampleArray]:
    """Yield a seekable file, or samples. A file that the caller passes stays open."""
    if isinstance(recording, str | bytes | os.PathLike) or hasattr(recording, "read"):
        with open_file(recording) as file:
            yield file
    elif sample_rate is None:
        raise ValueError("sample_rate is missing: pass the sample rate of the samples in Hz")
    else:
        audio = float_format(sample_rate)  # checks the rate
        yield SampleArray(as_float(recording), audio.sample_rate_hz)


@contextmanager
def open_file(recording: Any) -> Iterator[BinaryIO]:
    """Yield a seekable file for a path, bytes or a file. A pipe, which cannot be read twice, is
    copied."""
    with ExitStack() as stack:
        file: Any = recording
        if isinstance(recording, bytes):
            file = io.BytesIO(recording)
        elif isinstance(recording, str | os.PathLike):
            file = stack.enter_context(open(recording, "rb"))
        if isinstance(file.read(0), str):
            raise ValueError("the file is in text mode: use open(..., 'rb'), or sys.stdin.buffer")
        if not (hasattr(file, "seekable") and file.seekable()):
            pipe, file = file, stack.enter_context(SpooledTemporaryFile(SPOOLED_BYTES))
            shutil.copyfileobj(pipe, file)
            file.seek(0)
        yield file
