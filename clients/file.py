"""Transcribe recordings: ``python -m clients.file song.wav -o song.mid``.

Takes files, folders and patterns, and raw PCM from a pipe:
``ffmpeg -i film.mkv -f s16le -ar 44100 -ac 1 - | python -m clients.file - --rate 44100``.
The service decodes the recordings and serves live streams first. If a transcription breaks off, the
notes so far are still written.

Exit status: 0 everything is transcribed; 1 something is missing; 2 wrong usage; 3 no service.
"""

import argparse
import json
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.connection.websocket import KEY_HELP
from clients.errors import BusyError, ConnectError, TranscriptionError
from clients.midi.notes import NoteList
from clients.options import add_service_options
from clients.recordings import (
    MIDI,
    add_result_options,
    check_midi_options,
    find_recordings,
    kept,
    pieces,
    print_any_name,
    save_midi,
    targets,
)
from clients.upload import transcribe
from service.protocol.options import MAX_CHANNELS, Encoding, Mode
from service.protocol.server_messages import EVENTS, NoteOff

try:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[clients]'")

PIPE = "-"
JSON = (".json",)
WHOLE, INCOMPLETE, NO_SERVICE = 0, 1, 3
BUSY_TRIES = 20
"""Attempts at a recording that the service has no room for, as late as it says."""


@dataclass(slots=True)
class Transcript:
    """The result of a recording; ``failure`` if it ended early.

    Attributes:
        started: the model and the options that the service chose.
        totals: of ``done``; None if the answer broke off.
    """

    notes: NoteList = field(default_factory=NoteList)
    started: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, Any] | None = None
    failure: str | None = None


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
        "-o",
        "--output",
        metavar="OUT",
        help="MIDI or JSON file, or a folder (default: next to each recording)",
    )
    parser.add_argument("--json", metavar="OUT.json", help="notes as JSON too; a file or a folder")
    add_service_options(
        parser, "audio after each frame that the model may use, in ms", f"one of {', '.join(Mode)}"
    )
    add_result_options(parser)
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="recordings at a time (default: 1)"
    )
    parser.add_argument(
        "--split", action="store_true", help="a MIDI file for each instrument: OUT.violin.mid"
    )
    pipe = parser.add_argument_group("raw PCM from standard input")
    pipe.add_argument("--rate", type=int, metavar="HZ", help="sample rate (required)")
    pipe.add_argument("--channels", type=int, choices=range(1, MAX_CHANNELS + 1), default=1)
    pipe.add_argument("--encoding", choices=list(Encoding), default=Encoding.PCM_S16LE)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    print_any_name()
    if args.jobs < 1:
        parser.error("--jobs must be at least 1")
    if PIPE in args.files and args.rate is None:
        parser.error(f"{PIPE} needs --rate")
    found = find_recordings(args.files)
    if not found:
        parser.error(f"no recordings in {', '.join(args.files)}")
    if Path(PIPE) in found:
        found[Path(PIPE)] = Path("stdin")
    try:
        results = [targets(found, args.output, MIDI + JSON)]
        if args.json is not None:
            results.append(targets(found, args.json, JSON))
    except ValueError as error:
        parser.error(str(error))
    check_midi_options(parser, args, results[0].values())
    work = [(path, [each[path] for each in results]) for path in found]
    return _transcribe_all(work, args)


def _transcribe_all(work: Sequence[tuple[Path, Sequence[Path]]], args: argparse.Namespace) -> int:
    """Transcribe files, ``--jobs`` at a time; returns the exit status.

    Ctrl-C ends the connections, so that the notes so far are written.
    """
    console = Console(stderr=True)
    connections: list[socket.socket] = []
    interrupted = threading.Event()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}, {task.fields[notes]} notes"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # else the terminal would get what a file is to get
    )

    def one(job: tuple[Path, Sequence[Path]]) -> int:
        path, results = job

        def say(words: object, style: str | None = None) -> None:
            console.print(f"{path}: {words}", style=style, markup=False, soft_wrap=True)

        def attempt() -> None:
            _transcribe_file(path, results, args, connections, bar, say)

        try:
            if str(path) == PIPE:  # it can be read only once
                attempt()
            else:
                _patiently(attempt, interrupted, say)
            return WHOLE
        except (TranscriptionError, ValueError, OSError) as error:
            say(error, "red")
            return NO_SERVICE if isinstance(error, ConnectError) else INCOMPLETE

    with bar, ThreadPoolExecutor(args.jobs) as threads:
        try:
            failures = set(threads.map(one, work)) - {WHOLE}
        except KeyboardInterrupt:
            interrupted.set()
            for connection in connections:
                with suppress(OSError):  # it has been closed
                    connection.shutdown(socket.SHUT_RDWR)
            raise
    return INCOMPLETE if len(failures) > 1 else next(iter(failures), WHOLE)


def _patiently(
    attempt: Callable[[], None], interrupted: threading.Event, say: Callable[[object], None]
) -> None:
    """Attempts again, as late as the service says, while it has no room."""
    for left in reversed(range(BUSY_TRIES)):
        try:
            return attempt()
        except BusyError as error:
            if left == BUSY_TRIES - 1:
                say(f"{error}; waiting")
            if not left or interrupted.wait(error.retry_after_s):
                raise


def _transcribe_file(
    path: Path,
    results: Sequence[Path],
    args: argparse.Namespace,
    connections: list[socket.socket],
    bar: Progress,
    say: Callable[[str], None],
) -> None:
    """Transcribe one file and write the results, also of one that breaks off.

    Raises:
        TranscriptionError: it was refused, or broke off.
        OSError: a result cannot be written, or exists and is not to be replaced.
    """
    tables = [result for result in results if result.suffix.lower() in JSON]
    scores = [result for result in results if result not in tables]
    if complaint := kept(tables if args.split else results, args.force):
        raise FileExistsError(complaint)
    options = {
        "mode": args.mode,
        "lookahead_ms": args.lookahead_ms,
        "block_frames": args.block_frames,
        "model": args.model,
        "instruments": ",".join(args.instruments) if args.instruments else None,
        "updates": True,
    }
    if str(path) == PIPE:
        path, audio = Path("stdin"), sys.stdin.buffer
        options |= {
            "encoding": args.encoding,
            "sample_rate": args.rate,
            "channels": args.channels,
        }
    else:
        audio = path.open("rb")  # type: ignore[assignment]  # both are binary files
    task = bar.add_task(path.name, total=None, notes=0, done="")
    try:
        with audio:
            messages = transcribe(args.url, pieces(audio), options, connected=connections.append)
            transcript = _gather(messages, bar, task)
    finally:
        bar.remove_task(task)
    notes, failure = transcript.notes, transcript.failure
    files: list[Path] = []
    try:
        # An answer that broke off before its first note does not replace an earlier file.
        if transcript.totals is not None or notes.notes:
            files = save_midi(notes, scores, args, say)
        for table in tables:
            table.write_text(json.dumps(_describe(path, transcript), indent=1) + "\n")
    except OSError as error:
        raise OSError(f"{failure}; {error}" if failure else str(error)) from error
    saved = ", ".join(map(str, [*files, *tables]))
    if failure is not None:
        rest = f" -> {saved}" if saved else ""
        incomplete = f"incomplete: {len(notes.notes)} notes came before{rest}"
        raise TranscriptionError(f"{failure}; {incomplete}")
    print(f"{path}: {len(notes.notes)} notes -> {saved}")


def _gather(messages: Any, bar: Progress, task: TaskID) -> Transcript:
    """Collects the messages of one recording.

    Raises:
        TranscriptionError: the service refused the recording.
    """
    transcript = Transcript()
    notes = transcript.notes
    reached: dict[str, Any] = {"frame": 0, "time_s": 0.0}
    try:
        for message in messages:
            match message.pop("type"):
                case "started":
                    transcript.started = message
                    notes.programs = message.get("instruments", {})
                case kind if kind in EVENTS:
                    notes.event(EVENTS[kind](**message))
                case "progress":
                    reached = {"frame": message["frames"], "time_s": message["time_s"]}
                    fraction, time_s = message["fraction"], message["time_s"]
                    total = time_s / fraction if fraction else None
                    done = f"{time_s:.0f} s"
                    bar.update(
                        task, total=total, completed=time_s, done=done, notes=len(notes.notes)
                    )
                case "error":
                    transcript.failure = f"{message['message']} ({message['code']})"
                case "done":
                    transcript.totals = message["totals"]
    except TranscriptionError as error:
        if not transcript.started:
            raise
        transcript.failure = transcript.failure or str(error)
    if transcript.totals is None and transcript.failure is None:
        transcript.failure = "the service closed the connection"
    for note in notes.sounding:
        notes.event(NoteOff(note_id=note.note_id, pitch=note.pitch, **reached))
    return transcript


def _describe(path: Path, transcript: Transcript) -> dict[str, Any]:
    return {
        "file": path.name,
        "complete": transcript.failure is None,
        "duration_s": transcript.totals["audio_s"] if transcript.totals else None,
        "frames": transcript.totals["frames"] if transcript.totals else None,
        **transcript.started,
        **transcript.notes.to_json(),
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
