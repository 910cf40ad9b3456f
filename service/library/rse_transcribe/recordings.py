"""``transcribe`` and ``Transcriber``: recordings to notes by the pipeline of the service."""

import io
import os
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from threading import Lock
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
    load,
)
from rse_transcribe.transcription import Transcription
from service.audio.samples import SampleArray
from service.engine.load import PIANO_MODEL, available_cores, return_network
from service.engine.local import LocalEngine
from service.engine.runners import device_of
from service.protocol.options import FILE_OPTIONS
from service.stream.recording import ChosenModel, TranscriptionResult, transcribe_recording
from service.stream.segment_pipeline import FileProgress
from service.stream.setup import describe_options
from service.stream.windows import InferenceEngine
from service.workers.connection import PROCESSES
from service.workers.messages import WorkerConfig
from service.workers.pool import BackgroundPool, WorkerPool

Recording = str | os.PathLike[str] | bytes | BinaryIO | ArrayLike | torch.Tensor

_BAR_AFTER_S = 1.0  # shorter work shows no bar
_SPOOLED_BYTES = 1 << 26  # of a pipe, before it goes to disk


class IncompleteError(ValueError):
    """A recording that is damaged; ``transcription`` has the notes of the rest."""

    def __init__(self, fault: object, transcription: Transcription) -> None:
        super().__init__(str(fault), transcription)  # what another process is sent
        self.transcription = transcription

    def __str__(self) -> str:
        return f"{self.args[0]}; incomplete: {len(self.transcription.notes)} notes"


class _LazyEngine:
    """Loads shipped weights at the first call and returns what computes with them."""

    def __init__(self, model: str, device: str) -> None:
        self._model, self._device = model, device
        self._lock = Lock()
        self._engine: LocalEngine | None = None

    def __call__(self) -> LocalEngine:
        with self._lock:
            if self._engine is None:
                self._engine = LocalEngine(load(self._model, self._device))
            return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


class Transcriber:
    """Transcribes recordings, each as ``transcribe`` does, but sets the network up only once.

        with Transcriber() as transcriber:
            for path in paths:
                transcriber.transcribe(path).save(path.with_suffix(".mid"))

    Several threads may share one; processes started by ``spawn`` make one each.
    """

    def __init__(
        self, *, model: Model = "auto", device: str = "auto", worker_processes: int = 0
    ) -> None:
        """Args:
            model, device: see ``transcribe``.
            worker_processes: on a CPU with several cores, compute in at most this many processes
                (Linux): faster than threads, but they take seconds to start and 0.2 GB each.

        Raises:
            ValueError: unknown weights, or another device.
        """
        auto = isinstance(model, str) and model == "auto"
        network = as_model("live" if auto else model, device)
        cores = available_cores()
        processes = min(worker_processes, cores) if PROCESSES else 0
        self._piano: Callable[[], InferenceEngine] | None = None
        resources = ExitStack()
        if processes > 1 and device_of(network).type == "cpu":
            loading, piano = partial(return_network, network), PIANO_MODEL if auto else None
            setup = WorkerConfig(loading, network.config.name, "cpu", piano)
            pool = resources.enter_context(
                closing(BackgroundPool(WorkerPool(setup, cores, processes)))
            ).pool
            self._engine: InferenceEngine = pool
            if (engine := pool.piano) is not None:
                self._piano = lambda: engine
        else:
            self._engine = resources.enter_context(LocalEngine(network))
            if auto:
                self._piano = resources.enter_context(closing(_LazyEngine(PIANO_MODEL, device)))
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
        """See the function ``transcribe``. Raises RuntimeError when closed, or forked."""
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
        performance: TranscriptionResult | None = None
        fault: ValueError | None = None

        def keep(_: int, heads: NDArray[np.float32]) -> None:
            frames.append(heads[config.heads.index("frame")].copy())

        with (
            open_recording(recording, sample_rate) as source,
            progress_bar(source, progress) as bar,
        ):
            items = transcribe_recording(
                source, self._engine, options, piano=self._piano, on_frames=keep
            )
            with closing(items):
                try:
                    for item in items:
                        if isinstance(item, FileProgress) and item.fraction is not None:
                            bar.update(item.fraction - bar.n)
                        elif isinstance(item, ChosenModel):
                            config = item.config
                        elif isinstance(item, TranscriptionResult):
                            performance = item
                except ValueError as error:
                    if performance is None:
                        raise
                    fault = error
        assert performance is not None
        transcription = Transcription(
            performance,
            np.concatenate(frames),
            config.sample_rate / HOP,
            describe_options(options, config),
        )
        if fault is not None:
            raise IncompleteError(fault, transcription) from fault
        return transcription

    def close(self) -> None:
        """End its threads and processes; may be called twice."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def transcribe(
    recording: Recording,
    sample_rate: Rate | None = None,
    *,
    model: Model = "auto",
    lookahead_ms: float = FILE_OPTIONS.lookahead_ms,
    device: str = "auto",
    instruments: str | Sequence[str] | None = None,
    tuning_hz: float | None = None,
    bends: bool = False,
    progress: bool = True,
) -> Transcription:
    """Transcribe a recording: the notes that ``POST /transcribe`` gives.

    May be called in threads. For several recordings a ``Transcriber`` is faster.

    Args:
        recording: path, binary file or bytes of a sound file or a film
            (``service.audio.container``); or samples of shape [n] or [n, channels]: an array or
            tensor of floats (full scale 1), int16, int32 or uint8 (128 is silence), or a
            list of floats.
        sample_rate: of samples, a whole number of Hz from 4,000 to 384,000; files state theirs.
        model: a name of ``available_models()``, a path to .safetensors, or what ``load`` returned.
            ``auto``: ``live``, or ``accurate`` for a piano if the machine is fast enough;
            ``description["model"]`` states which was used.
        lookahead_ms: audio after each frame that the model may use, 46 to 372 ms.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``; a loaded network stays on its own.
        instruments: names of ``model.config.INSTRUMENTS`` to assign notes to, in a sequence or
            comma-separated; None or empty: all.
        tuning_hz: frequency of A4, 380 to 480 Hz; None: that of the performance is followed.
        bends: also follow the pitch within notes: ``Note.bends``, and in MIDI and JSON.
        progress: show a bar in a terminal or a notebook if it takes longer than a second.

    Raises:
        OSError: the file cannot be opened.
        IncompleteError: a ValueError; the audio is damaged part-way, or has too many notes.
        ValueError: no audio, samples of another type or shape, a file opened as text, unknown
            weights or instruments, another device, or a number out of range.
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


def progress_bar(recording: BinaryIO | SampleArray, wanted: bool = True) -> Any:
    """Return the progress bar of a recording. It is hidden unless standard error is a terminal or a
    notebook."""
    name = getattr(recording, "name", None)  # without a path a number, or missing
    terminal = sys.stderr is not None and sys.stderr.isatty()  # a windowed program has none
    shown = wanted and (terminal or "ipykernel" in sys.modules)
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
    """A seekable file, closed here only if it was opened here, or samples."""
    if isinstance(recording, str | bytes | os.PathLike) or hasattr(recording, "read"):
        with open_file(recording) as file:
            yield file
    elif sample_rate is None:
        raise ValueError("samples need their sample_rate in Hz")
    else:
        audio = float_format(sample_rate)  # checks the rate
        yield SampleArray(as_float(recording), audio.sample_rate_hz)


@contextmanager
def open_file(recording: Any) -> Iterator[BinaryIO]:
    """A seekable file of a path, bytes or a file."""
    if isinstance(recording, bytes):
        yield io.BytesIO(recording)
    elif isinstance(recording, str | os.PathLike):
        with open(recording, "rb") as file, _seekable(file) as seekable:
            yield seekable
    else:
        with _seekable(recording) as seekable:
            yield seekable


@contextmanager
def _seekable(file: Any) -> Iterator[BinaryIO]:
    """The file itself, or what comes from it: a pipe cannot be read twice."""
    if isinstance(file.read(0), str):
        raise ValueError("a recording is a binary file: open(..., 'rb'), or sys.stdin.buffer")
    if hasattr(file, "seekable") and file.seekable():
        yield file
        return
    with SpooledTemporaryFile(_SPOOLED_BYTES) as spool:
        shutil.copyfileobj(file, spool)
        spool.seek(0)
        yield spool  # type: ignore[misc]  # it has all that is used
