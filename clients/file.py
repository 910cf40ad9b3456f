"""Transcribe recordings: ``python -m clients.file song.wav -o song.mid``.

Files, folders and patterns are taken, and raw PCM from a pipe:
``ffmpeg -i film.mkv -f s16le -ar 44100 -ac 1 - | python -m clients.file - --rate 44100``.
Recordings go the way that live audio goes, through the service's websocket, as fast as they are
taken, or at the pace of the music with ``--realtime``. Where one breaks off half way, the notes
until then are written all the same.

Exit status: 0 all is transcribed; 1 something is missing; 2 wrong usage; 3 no service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.client import TranscriptionClient
from clients.connection import KEY_HELP
from clients.errors import ConnectError, TranscriptionError
from clients.notes import NoteList
from clients.protocol import MAX_CHANNELS, SAMPLE_BYTES, Done, NoteOn, Progress, Ready
from clients.tempo_option import add_tempo_option, beat_of

try:
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar

    from clients.recording import PcmPipe, Recording, Source, UnreadableError, find_recordings
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[clients]'")

DEFAULT_URL = "http://127.0.0.1:8000"
# Nobody waits for a frame of a file: more context and fewer forward passes.
DEFAULT_LOOKAHEAD_MS = 200.0
DEFAULT_BLOCK_FRAMES = 16
READ_S = 0.5
REALTIME_READ_S = 0.02
PIPE = "-"
WHOLE, INCOMPLETE, NO_SERVICE = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Transcript:
    """What came of a recording; ``failure`` where it ended before its end."""

    ready: Ready
    notes: NoteList
    done: Done | None
    failure: Exception | None
    duration_s: float


async def transcribe(
    recording: Source,
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
    notes = client.notes
    reading = asyncio.create_task(_read(client, bar, task))
    done: Done | None = None
    failure: Exception | None = None
    try:
        try:
            await _send(client, recording, realtime)
        except UnreadableError as error:
            failure = error  # what was sent is still transcribed to its end
        done = await client.stop()
    except TranscriptionError as error:
        failure, done = error, error.done
    finally:
        await client.close()
        await reading
    sent_s = client.sent_samples / recording.sample_rate
    return Transcript(ready, notes, done, failure, recording.duration_s or sent_s)


async def _send(client: TranscriptionClient, recording: Source, realtime: bool) -> None:
    started = time.monotonic()
    async for block in recording.blocks(REALTIME_READ_S if realtime else READ_S):
        await client.send(block)
        if realtime:
            due = started + client.sent_samples / recording.sample_rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _read(client: TranscriptionClient, bar: ProgressBar | None, task: TaskID | None) -> None:
    try:
        async for event in client:
            if bar is not None and task is not None and isinstance(event, NoteOn | Progress):
                bar.update(
                    task,
                    completed=event.time_s,
                    done=f"{event.time_s:.0f} s",
                    notes=len(client.notes.notes),
                )
    except TranscriptionError:
        pass  # the sender is told the same


# -- command line ---------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clients.file",
        description=__doc__,
        epilog=KEY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", help=f"WAV, FLAC, OGG or MP3; folders; patterns; {PIPE} for raw PCM"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT.mid", help="MIDI file, or a folder for several"
    )
    parser.add_argument(
        "--json", type=Path, metavar="OUT.json", help="notes as JSON; a folder for several files"
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="the service (default: %(default)s)")
    add_tempo_option(parser)
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="recordings at a time (default: 1)"
    )
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
    pipe = parser.add_argument_group("raw PCM from standard input")
    pipe.add_argument("--rate", type=int, metavar="HZ", help="its sample rate; needed")
    pipe.add_argument("--channels", type=int, choices=range(1, MAX_CHANNELS + 1), default=1)
    pipe.add_argument("--encoding", choices=sorted(SAMPLE_BYTES), default="pcm_s16le")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.jobs < 1:
        parser.error("--jobs is a number from 1")
    if PIPE in args.files and args.rate is None:
        parser.error(f"{PIPE} needs --rate")
    paths = find_recordings(args.files)
    if not paths:
        parser.error("no recordings there")
    for folder, suffix in ((args.output, ".mid"), (args.json, ".json")):
        if len(paths) > 1 and folder is not None:
            if folder.exists() and not folder.is_dir():
                parser.error(f"{folder} is a file; several recordings need a folder")
            folder.mkdir(parents=True, exist_ok=True)
        elif folder is not None and not folder.parent.is_dir():
            parser.error(f"{folder.parent} is no folder")  # before the work, not after it
        targets = Counter(_target(folder, path, suffix) for path in paths)
        twice = [str(target) for target, count in targets.items() if count > 1]
        if twice:
            parser.error(f"two recordings would be written to {twice[0]}")
    return asyncio.run(_transcribe_all(paths, args))


async def _transcribe_all(paths: Sequence[Path], args: argparse.Namespace) -> int:
    """Transcribe files, some at a time; returns the exit status."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}, {task.fields[notes]} notes"),
        TimeRemainingColumn(),
    )
    places = asyncio.Semaphore(args.jobs)

    async def one(path: Path) -> int:
        async with places:
            try:
                complaint, status = await _transcribe_file(path, args, bar), INCOMPLETE
            except ConnectError as error:
                complaint, status = str(error), NO_SERVICE
            except (TranscriptionError, UnreadableError, ValueError, OSError) as error:
                complaint, status = str(error), INCOMPLETE
        if complaint is None:
            return WHOLE
        console.print(f"{path}: {complaint}", style="red", markup=False, soft_wrap=True)
        return status

    with ProgressBar(*columns, console=console) as bar:
        statuses = await asyncio.gather(*(one(path) for path in paths))
    failures = {status for status in statuses if status != WHOLE}
    return INCOMPLETE if len(failures) > 1 else next(iter(failures), WHOLE)


def _open(path: Path, args: argparse.Namespace) -> Source:
    if str(path) == PIPE:
        return PcmPipe(sys.stdin.buffer, args.encoding, args.rate, args.channels)
    return Recording(path)


async def _transcribe_file(path: Path, args: argparse.Namespace, bar: ProgressBar) -> str | None:
    """Transcribe one file and write what came of it; returns what went wrong, if anything."""
    recording = _open(path, args)
    try:
        task = bar.add_task(recording.path.name, total=recording.duration_s, notes=0, done="")
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
        bar.update(
            task,
            total=transcript.duration_s,
            completed=transcript.duration_s,
            notes=len(notes.notes),
        )
    saved = []
    midi = _target(args.output, recording.path, ".mid")
    # Without ``done`` the session broke off: the notes it told of, and no file if it told of none.
    if transcript.done is not None or notes.notes:
        notes.save_midi(midi, beat_of(notes, args.tempo))
        saved.append(str(midi))
    if args.json is not None:
        target = _target(args.json, recording.path, ".json")
        target.write_text(json.dumps(_describe(recording, transcript), indent=1) + "\n")
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


def _describe(recording: Source, transcript: Transcript) -> dict[str, Any]:
    ready = transcript.ready
    return {
        "file": recording.path.name,
        "complete": transcript.failure is None,
        "duration_s": transcript.duration_s,
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
