"""Transcribe recordings: ``python -m clients.file song.wav -o song.mid``.

A recording goes the way that live audio goes, through the service's websocket, as fast as it is
taken, or at the pace of the music with ``--realtime``. Where a session breaks off half way, the
notes until then are written all the same, and the exit status says that something is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.client import TranscriptionClient
from clients.connection import KEY_HELP
from clients.errors import TranscriptionError
from clients.notes import NoteList
from clients.protocol import MAX_CHANNELS, Done, NoteOn, Progress, Ready, StartOptions

try:
    import numpy as np
    import soundfile
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[clients]'")

DEFAULT_URL = "http://127.0.0.1:8000"
# Nobody waits for a frame of a file: more context and fewer forward passes.
DEFAULT_LOOKAHEAD_MS = 200.0
DEFAULT_BLOCK_FRAMES = 16
READ_S = 0.5
REALTIME_READ_S = 0.02


class UnreadableError(Exception):
    """A recording that cannot be decoded or sent."""


class _SequentialFile(soundfile.SoundFile):  # type: ignore[misc]
    """A sound file that is read from beginning to end.

    soundfile seeks to where it is after every read of a seekable file; in an MP3 that loses the
    decoder's state, and each block but the first begins with noise.
    """

    def seekable(self) -> bool:
        return False


class Recording:
    """An audio file, decoded block by block into what the service takes.

    Raises:
        UnreadableError: no such file, no audio, or empty.
        ValueError: a sample rate that the service does not take.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():  # libsndfile says "System error"
            raise UnreadableError("is not a file" if path.exists() else "does not exist")
        try:
            self._file = _SequentialFile(path)
        except (soundfile.LibsndfileError, OSError) as error:
            reason = str(getattr(error, "error_string", error)).rstrip(".")
            raise UnreadableError(f"cannot be read: {reason}") from None
        if self._file.frames == 0:
            self._file.close()
            raise UnreadableError("holds no audio")
        # 16-bit samples travel as they are; all others keep their precision as float.
        self._dtype = "int16" if self._file.subtype == "PCM_16" else "float32"
        self.sample_rate: int = self._file.samplerate
        self.duration_s: float = self._file.frames / self.sample_rate
        self.channels: int = self._file.channels if self._file.channels <= MAX_CHANNELS else 1
        if self._file.channels != self.channels:
            self._dtype = "float32"  # the mean of many channels is no 16-bit number

    def options(self, **wanted: Any) -> StartOptions:
        """What to ``start`` with, ``wanted`` being the fields about transcription."""
        encoding = "pcm_s16le" if self._dtype == "int16" else "pcm_f32le"
        return StartOptions(
            encoding=encoding, sample_rate=self.sample_rate, channels=self.channels, **wanted
        )

    async def blocks(self, seconds: float) -> AsyncIterator[bytes]:
        """PCM in pieces of about ``seconds``, decoded outside of the event loop."""
        frames = max(1, round(seconds * self.sample_rate))
        while True:
            block = await asyncio.to_thread(self._read, frames)
            if not block:
                return
            yield block

    def _read(self, frames: int) -> bytes:
        try:
            samples = self._file.read(frames, dtype=self._dtype, always_2d=True)
        except soundfile.LibsndfileError as error:
            raise UnreadableError(f"is damaged: {error.error_string}") from None
        if samples.shape[1] != self.channels:
            samples = samples.mean(axis=1, dtype=np.float32)
        little_endian = samples.dtype.newbyteorder("<")
        return bytes(np.ascontiguousarray(samples, dtype=little_endian))

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Transcript:
    """What came of a recording; ``failure`` where it ended before its end."""

    ready: Ready
    notes: NoteList
    done: Done | None
    failure: Exception | None


async def transcribe(
    recording: Recording,
    url: str,
    *,
    realtime: bool = False,
    bar: ProgressBar | None = None,
    task: TaskID | None = None,
    **wanted: Any,
) -> Transcript:
    """Send a whole recording and gather its notes.

    Args:
        url: any address of the service.
        realtime: send at the pace of the music.
        bar, task: progress bar to move, in seconds of audio.
        wanted: fields of ``StartOptions`` about transcription.

    Raises:
        TranscriptionError: no session came about. A later failure is in the result.
    """
    client = TranscriptionClient(url, recording.options(**wanted))
    ready = await client.connect()
    notes = NoteList()
    reading = asyncio.create_task(_read(client, notes, bar, task))
    done: Done | None = None
    failure: Exception | None = None
    try:
        try:
            await _send(client, recording, realtime)
        except UnreadableError as error:
            failure = error  # what was sent is still transcribed to its end
        done = await client.stop()
        if done.reason != "stop":
            failure = TranscriptionError(f"the service ended the session: {done.reason}")
    except TranscriptionError as error:
        failure, done = error, error.done or client.done
    finally:
        await client.close()
        await reading
    return Transcript(ready, notes, done, failure)


async def _send(client: TranscriptionClient, recording: Recording, realtime: bool) -> None:
    started = time.monotonic()
    async for block in recording.blocks(REALTIME_READ_S if realtime else READ_S):
        await client.send(block)
        if realtime:
            due = started + client.sent_samples / recording.sample_rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _read(
    client: TranscriptionClient, notes: NoteList, bar: ProgressBar | None, task: TaskID | None
) -> None:
    try:
        async for event in client:
            notes.event(event)
            if bar is not None and task is not None and isinstance(event, NoteOn | Progress):
                bar.update(task, completed=event.time_s, notes=len(notes.notes))
    except TranscriptionError:
        pass  # the sender is told the same


# -- command line ---------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clients.file", description=__doc__, epilog=KEY_HELP
    )
    parser.add_argument("files", nargs="+", type=Path, help="WAV, FLAC, OGG or MP3")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT.mid", help="MIDI file, or a folder for several"
    )
    parser.add_argument(
        "--json", type=Path, metavar="OUT.json", help="notes as JSON; a folder for several files"
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="the service (default: %(default)s)")
    parser.add_argument("--realtime", action="store_true", help="send at the pace of the music")
    parser.add_argument(
        "--lookahead-ms",
        type=float,
        default=DEFAULT_LOOKAHEAD_MS,
        help="future audio a frame may wait for, in ms (default: %(default)g)",
    )
    parser.add_argument(
        "--block-frames",
        type=int,
        default=DEFAULT_BLOCK_FRAMES,
        help="frames emitted together (default: %(default)d)",
    )
    parser.add_argument("--mode", choices=["block", "centre"], help="way of emitting frames")
    parser.add_argument("--model", help="name of the weights")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    several = len(args.files) > 1
    for folder in (args.output, args.json):
        if several and folder is not None:
            if folder.exists() and not folder.is_dir():
                parser.error(f"{folder} is a file; several recordings need a folder")
            folder.mkdir(parents=True, exist_ok=True)
        elif folder is not None and not folder.parent.is_dir():
            parser.error(f"{folder.parent} is no folder")  # before the work, not after it
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} s, {task.fields[notes]} notes"),
        TimeRemainingColumn(),
    )
    failed = 0
    with ProgressBar(*columns, console=console) as bar:
        for path in args.files:
            try:
                complaint = asyncio.run(_transcribe_file(path, args, bar))
            except (TranscriptionError, UnreadableError, ValueError, OSError) as error:
                complaint = str(error)
            if complaint is not None:
                failed += 1
                console.print(f"{path}: {complaint}", style="red", markup=False, soft_wrap=True)
    return 1 if failed else 0


async def _transcribe_file(path: Path, args: argparse.Namespace, bar: ProgressBar) -> str | None:
    """Transcribe one file and write what came of it; returns what went wrong, if anything."""
    recording = Recording(path)
    try:
        task = bar.add_task(path.name, total=recording.duration_s, notes=0)
        transcript = await transcribe(
            recording,
            args.url,
            realtime=args.realtime,
            bar=bar,
            task=task,
            mode=args.mode,
            lookahead_ms=args.lookahead_ms,
            block_frames=args.block_frames,
            model=args.model,
        )
    finally:
        recording.close()
    notes = transcript.notes
    if transcript.failure is None:
        bar.update(task, completed=recording.duration_s, notes=len(notes.notes))
    saved = []
    midi = _target(args.output, path, ".mid")
    if transcript.done is not None:
        midi.write_bytes(transcript.done.midi)
        saved.append(str(midi))
    elif notes.notes:
        # The session broke off before the service could send its file: the notes it told of.
        notes.save_midi(midi)
        saved.append(str(midi))
    if args.json is not None:
        target = _target(args.json, path, ".json")
        target.write_text(json.dumps(_describe(path, recording, transcript), indent=1) + "\n")
        saved.append(str(target))
    if transcript.failure is None:
        print(f"{path}: {len(notes.notes)} notes -> {', '.join(saved)}")
        return None
    rest = f" -> {', '.join(saved)}" if saved else ""
    return f"{transcript.failure}; incomplete: {len(notes.notes)} notes came before{rest}"


def _target(chosen: Path | None, source: Path, suffix: str) -> Path:
    """Where the result goes: beside its source, into the chosen folder, or the chosen file."""
    if chosen is None:
        return source.with_suffix(suffix)
    return chosen / source.with_suffix(suffix).name if chosen.is_dir() else chosen


def _describe(path: Path, recording: Recording, transcript: Transcript) -> dict[str, Any]:
    ready = transcript.ready
    return {
        "file": path.name,
        "complete": transcript.failure is None,
        "duration_s": recording.duration_s,
        "model": ready.model,
        "mode": ready.mode,
        "lookahead_ms": ready.lookahead_ms,
        "block_frames": ready.block_frames,
        "notes": transcript.notes.to_json(),
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
