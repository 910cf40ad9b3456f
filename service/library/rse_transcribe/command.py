"""The command ``rse-transcribe``. It transcribes recordings, locally or with a service, and starts
other programs.

Exit status: 0 if all recordings were transcribed; 1 if a recording failed or was skipped, or the
output was closed; 2 for invalid usage; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from rse_transcribe import __version__
from rse_transcribe.files import FORMATS, MIDI, STDIO, find_recordings, targets
from rse_transcribe.standard_input import StandardInput
from service.protocol.command_line import (
    add_result_options,
    check_not_existing,
    check_writable,
    counted,
    escape_names,
    one_line,
    write_atomically,
)
from service.score import SCORES

if TYPE_CHECKING:
    from rse_transcribe import Transcription

    Transcribe = Callable[[Path | BinaryIO, Callable[[object], None]], Transcription]

EXIT_OK, EXIT_INCOMPLETE, USAGE, INTERRUPTED = 0, 1, 2, 130
MAX_SKIPPED_LISTED = 5  # maximum number of skipped files in the message
PROGRAMS = {  # module, and the extra that it requires
    "serve": ("service.__main__", ""),
    "live": ("clients.microphone", "[clients]"),
    "keys": ("service.access.keys", ""),
    "train": ("training.run", "[training]"),
    "evaluate": ("training.evaluate", "[training]"),
}
DESCRIPTION = """\
Transcribes recordings and videos to MIDI.

  rse-transcribe song.m4a -o song.mid    or .json, .csv, .pdf, .musicxml, .mxl
  rse-transcribe album/ take.wav -o scores/ --format pdf   folders and files
  rse-transcribe serve, live             start a service; transcribe live audio
  rse-transcribe keys, train, evaluate   create API keys; train; test a model
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with a one-line message, without the usage."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    from service.score.analysis import add_beat_options  # imports numpy, which `keys` does not need

    parser = _Parser(
        prog="rse-transcribe",
        usage="rse-transcribe RECORDING ... [-o OUT] [options]",
        description=DESCRIPTION,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=27),
    )
    add = parser.add_argument
    add("recordings", nargs="+", metavar="RECORDING", help=argparse.SUPPRESS)
    add("-o", dest="output", metavar="OUT", help="file, folder, or - (CSV); default: next to input")
    kinds = "mid (default), json, csv, musicxml, mxl or pdf"
    add("--format", choices=FORMATS, metavar="KIND", help=kinds)
    add("--server", metavar="URL", help="service to use; $RSE_KEY is its API key")
    add("--model", help="live (default), accurate, light, or a file")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--lookahead-ms", type=float, metavar="MS", default=200.0, help="default: %(default)g")
    add_result_options(parser)
    add_beat_options(parser)
    downbeat_help = "time of the first beat of a bar"
    add("--first-downbeat", dest="first_downbeat_s", type=float, metavar="S", help=downbeat_help)
    add("--version", action="version", version=__version__, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(*args) if args and args[0] in PROGRAMS else _transcribe(args)
        finally:
            sys.stdout.flush()  # raises BrokenPipeError here, not while Python exits
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has exited: discard the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INCOMPLETE


def _run(program: str, *arguments: str) -> int:
    module, extra = PROGRAMS[program]
    try:
        status: int = import_module(module).main(arguments, prog=f"rse-transcribe {program}")
    except ModuleNotFoundError as missing:
        _report(f"{missing.name} is missing: pip install 'rse-transcribe{extra}'")
        return EXIT_INCOMPLETE
    return status


def _report(message: object) -> None:
    print(one_line(message), file=sys.stderr)


def _transcribe(arguments: list[str]) -> int:
    from service.protocol.options import StreamOptions, lookahead_notice
    from service.score.analysis import beat_hints_from
    from service.score.beats import NO_BEAT_HINTS

    parser = _parser()
    args = parser.parse_args(arguments)
    escape_names()
    inputs = find_recordings(args.recordings)
    for problem in inputs.errors:
        _report(problem)
    if not inputs.recordings and not inputs.errors:
        parser.error(f"no recordings in {', '.join(args.recordings)}")
    options = {
        "lookahead_ms": args.lookahead_ms,
        "instruments": args.instruments or (),
        "tuning_hz": args.tuning_hz,
        "bends": args.bends,
    }
    if args.server is not None and args.device != parser.get_default("device"):
        parser.error("--device has no effect with --server: the service chooses its device")
    try:
        work = targets(inputs.recordings, args.output, args.format)
        StreamOptions(**options)
        hints = beat_hints_from(args)
        endings = {target.suffix.lower() for target in work.values()}
        if endings and endings <= {".csv", ""} and (args.bends or hints != NO_BEAT_HINTS):
            parser.error("CSV has no beats, chords or bends: omit their options, or write JSON")
        _check_libraries(endings)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    if notice := lookahead_notice(args.lookahead_ms):
        _report(notice)
    # Report the following errors before the import of torch, which takes a second.
    first = {target: path for path, target in reversed(work.items())}  # first input per target
    ready: dict[Path, Path] = {}
    for path, target in work.items():
        if first[target] != path:
            _report(f"{path}: skipped, because {first[target]} also writes to {target}; rename one")
        elif _is_ready(path, target, args.force):
            ready[path] = target
    complete = len(ready) == len(work) and not inputs.errors
    with ExitStack() as stack:
        piped = None
        try:
            if STDIO in ready:
                piped = stack.enter_context(closing(StandardInput()))
        except OSError as error:
            _report(_message(STDIO, error))
            del ready[STDIO]
            complete = False
        if ready:
            transcribe = stack.enter_context(_transcribing(parser, args, options, len(ready) > 1))
            for path, target in ready.items():
                source = piped if path == STDIO else None
                complete &= _transcribe_one(path, target, args, transcribe, source)
    if inputs.skipped:
        names = ", ".join(map(str, inputs.skipped[:MAX_SKIPPED_LISTED]))
        more = len(inputs.skipped) - MAX_SKIPPED_LISTED
        _report(f"skipped, not audio or video: {names}{f' and {more} more' if more > 0 else ''}")
    return EXIT_OK if complete else EXIT_INCOMPLETE


def _check_libraries(endings: set[str]) -> None:
    """Raise ScoreExtraMissingError if a library for these formats is missing."""
    if ".pdf" in endings:
        from service.score.sheet import load

        for library in ("verovio", "typst"):
            load(library)


def _is_ready(path: Path, target: Path, force: bool) -> bool:
    try:
        if target != STDIO:
            target.parent.mkdir(parents=True, exist_ok=True)
            check_writable(target)
            check_not_existing([target], force)
    except OSError as error:
        _report(_message(path, error))
        return False
    return True


def _message(path: Path, error: Exception) -> str:
    """Return a message that names the recording, and the file of the error if it is another."""
    if not isinstance(error, OSError):
        return f"{path}: {error}"
    is_other_file = error.filename and Path(os.fsdecode(error.filename)) != path
    why = error.strerror or error
    return f"{path}: {error.filename}: {why}" if is_other_file else f"{path}: {why}"


@contextmanager
def _transcribing(
    parser: argparse.ArgumentParser, args: argparse.Namespace, options: dict[str, Any], many: bool
) -> Iterator[Transcribe]:
    """Yield a function that transcribes a recording with a service or a Transcriber."""
    if args.server is not None:
        from rse_transcribe import remote

        query = {"model": args.model, **options}
        yield lambda recording, report: remote.transcribe(recording, args.server, query, report)
        return
    from rse_transcribe.recordings import Transcriber
    from service.engine.load import MAX_WORKERS
    from service.stream.windows import EngineError

    # Processes take seconds to start, which is too long for a single recording.
    processes, model = MAX_WORKERS if many else 0, args.model or "live"
    try:
        transcriber = Transcriber(model=model, device=args.device, worker_processes=processes)
    except ValueError as error:
        parser.error(str(error))
    except (EngineError, OSError) as error:  # a worker has failed to start
        parser.exit(EXIT_INCOMPLETE, f"{parser.prog}: {one_line(error)}\n")
    with transcriber:
        yield lambda recording, _: transcriber.transcribe(recording, **options)


def _transcribe_one(
    path: Path,
    target: Path,
    args: argparse.Namespace,
    transcribe: Transcribe,
    piped: StandardInput | None,
) -> bool:
    """Transcribe a recording and save it. Return True if it is complete."""
    from rse_transcribe.recordings import IncompleteError

    def report(message: object) -> None:
        _report(f"{path}: {message}")

    incomplete: IncompleteError | None = None
    try:
        try:
            transcription = transcribe(path if piped is None else piped.wait(), report)
        except IncompleteError as error:
            transcription, incomplete = error.transcription, error
        if incomplete is not None:
            report(incomplete)
        # An incomplete result without notes must not replace an existing file.
        if incomplete is None or transcription.notes:
            _save(transcription, target, args, report)
            if target != STDIO:
                notes = counted(len(transcription.notes), "note")
                print(one_line(f"{path}: {notes} -> {target}"), flush=True)
        return incomplete is None
    except BrokenPipeError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        _report(_message(path, error))
    return False


def _save(
    transcription: Transcription,
    target: Path,
    args: argparse.Namespace,
    report: Callable[[object], None],
) -> None:
    from rse_transcribe.transcription import json_file, write_csv
    from service.score.analysis import analyse, beat_hints_from

    hints, ending = beat_hints_from(args), target.suffix.lower()
    if target == STDIO:
        write_csv(transcription.notes, sys.stdout)
    elif ending in SCORES:
        score = transcription.score(transcription.performance.title or target.stem, hints)
        if not score.analysis.steady:
            report("no steady beat: written in free rhythm")
        if ending == ".pdf" and score.undrawable:
            report(f"the PDF's font lacks these characters of the title: {score.undrawable}")
        score.save(target)
    elif ending == ".json":
        write_atomically(target, json_file(transcription, hints))
    else:
        tempo = analyse(transcription.notes, hints).tempo if ending in MIDI else None
        transcription.save(target, tempo=tempo)


if __name__ == "__main__":
    sys.exit(main())
