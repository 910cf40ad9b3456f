"""The command ``rse-transcribe``: recordings to notes, here or through a service, and the other
programs.

Exit status: 0 everything is transcribed; 1 something is missing, or the output's reader has gone;
2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from rse_transcribe import __version__
from rse_transcribe.files import MIDI, STANDARD, TABLES, find_recordings, targets
from service.protocol.command_line import (
    add_result_options,
    check_writable,
    escape_names,
    one_line,
    refuse_existing,
)
from service.score import SCORES

if TYPE_CHECKING:
    from rse_transcribe import Transcriber, Transcription

    Say = Callable[[object], None]
    Transcribe = Callable[[Path | BinaryIO, Say], Transcription]

WHOLE, INCOMPLETE, USAGE, INTERRUPTED = 0, 1, 2, 130
MOST_NAMED = 5  # of the files that are left out
PROGRAMS = {  # module, and the extra that it needs
    "serve": ("service.__main__", ""),
    "live": ("clients.microphone", "[clients]"),
    "keys": ("service.access.keys", ""),
    "train": ("training.run", "[training]"),
    "evaluate": ("training.evaluate", "[training]"),
}
DESCRIPTION = """\
Writes the notes of recordings, and of films, as MIDI.

  rse-transcribe song.m4a -o song.mid    or .json, .csv, .pdf, .svg, .musicxml
  rse-transcribe album/ take.wav -o midi/    folders and files
  rse-transcribe serve, live               the service; a microphone with it
  rse-transcribe keys, train, evaluate     API keys, training, accuracy
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line; the usage is in --help."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    from service.score.analysis import add_beat_options  # numpy, which other programs may not need

    parser = _Parser(
        prog="rse-transcribe",
        usage="rse-transcribe RECORDING ... [-o OUT] [options]",
        description=DESCRIPTION,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=27),
    )
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help=argparse.SUPPRESS)
    parser.add_argument(
        "-o", dest="output", metavar="OUT", help="file, folder, or - (CSV); default: beside each"
    )
    parser.add_argument("--server", metavar="URL", help="transcribe there; $RSE_KEY is its key")
    parser.add_argument("--model", help="shipped weights, or .safetensors; default: the best")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--lookahead-ms", type=float, metavar="MS", default=200.0, help="default: %(default)g"
    )
    parser.add_argument("--quantize", action="store_true", help=argparse.SUPPRESS)
    add_result_options(parser)
    add_beat_options(parser)
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            if given and given[0] in PROGRAMS:
                return _run(given[0], given[1:])
            return _transcribe(_parser(), given)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, and not while Python ends
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `| head`, for one: what is still in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INCOMPLETE


def _run(program: str, arguments: list[str]) -> int:
    module, extra = PROGRAMS[program]
    try:
        status: int = import_module(module).main(arguments, prog=f"rse-transcribe {program}")
    except ModuleNotFoundError as missing:
        _say(f"{missing.name} is missing: pip install 'rse-transcribe{extra}'")
        return INCOMPLETE
    return status


def _transcribe(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    from service.protocol.options import StreamOptions

    args = parser.parse_args(arguments)
    escape_names()
    found = find_recordings(args.recordings)
    for complaint in found.complaints:
        _say(complaint)
    if not found.recordings and not found.complaints:
        parser.error(f"no recordings in {', '.join(args.recordings)}")
    try:
        work = targets(found.recordings, args.output)
        wanted = {"instruments": args.instruments or (), "tuning_hz": args.tuning_hz}
        StreamOptions(lookahead_ms=args.lookahead_ms, **wanted)
    except ValueError as error:
        parser.error(str(error))
    _check_results(parser, args, work.values())
    complete = not found.complaints
    with ExitStack() as stack:
        transcribe = _transcribe_function(parser, args, len(work) > 1, stack)
        first = {target: path for path, target in reversed(work.items())}
        for path, target in work.items():
            if first[target] != path:
                _say(f"{path}: {target} is that of {first[target]}")
                complete = False
            elif not _transcribe_one(path, target, args, transcribe):
                complete = False
    if found.left_out:
        names = ", ".join(map(str, found.left_out[:MOST_NAMED]))
        more = len(found.left_out) - MOST_NAMED
        _say(f"left out, as no recordings: {names}{f' and {more} more' if more > 0 else ''}")
    return WHOLE if complete else INCOMPLETE


def _say(words: object) -> None:
    if sys.stderr is not None:
        print(one_line(words), file=sys.stderr)


def _check_results(
    parser: argparse.ArgumentParser, args: argparse.Namespace, results: Iterable[Path]
) -> None:
    endings = {result.suffix.lower() for result in results}
    if endings and args.quantize and endings.isdisjoint(MIDI):
        parser.error("--quantize needs a MIDI file as output")
    if not endings.isdisjoint(SCORES):
        from service.score.sheet import ScoreExtraMissing, load

        try:  # before the work and not after it
            for library in ("music21", "partitura", "verovio", *["cairosvg"] * (".pdf" in endings)):
                load(library)
        except ScoreExtraMissing as missing:
            parser.error(str(missing))


def _transcribe_function(
    parser: argparse.ArgumentParser, args: argparse.Namespace, several: bool, stack: ExitStack
) -> Transcribe:
    """By a service, or by a transcriber for all recordings, set up for the first of them."""
    options: dict[str, Any] = {
        name: getattr(args, name) for name in ("lookahead_ms", "instruments", "tuning_hz", "bends")
    }

    @cache
    def transcriber() -> Transcriber:
        from model.storage import WeightsError
        from rse_transcribe.models import AUTO, DeviceError
        from rse_transcribe.recordings import Transcriber
        from service.workers.pool import MOST_WORKERS

        model, device = args.model or AUTO, args.device
        # Processes take seconds to start, about as long as a single piece of music.
        processes = MOST_WORKERS if several else 0
        try:
            made = Transcriber(model=model, device=device, worker_processes=processes)
            return stack.enter_context(made)
        except (WeightsError, DeviceError) as error:
            parser.error(str(error))

    def transcribe(recording: Path | BinaryIO, say: Say) -> Transcription:
        if args.server is None:
            return transcriber().transcribe(recording, **options)
        from rse_transcribe import remote

        return remote.transcribe(recording, args.server, {"model": args.model, **options}, say)

    return transcribe


def _transcribe_one(
    path: Path, target: Path, args: argparse.Namespace, transcribe: Transcribe
) -> bool:
    """One recording; what goes wrong is said in a line. Returns whether it is whole."""

    def say(words: object) -> None:
        _say(f"{path}: {words}")

    try:
        if target != STANDARD:  # known without the seconds that torch takes to load
            target.parent.mkdir(parents=True, exist_ok=True)
            check_writable(target)
            refuse_existing([target], args.force)
        from rse_transcribe.recordings import IncompleteError

        fault: IncompleteError | None = None
        try:
            transcription = transcribe(sys.stdin.buffer if path == STANDARD else path, say)
        except IncompleteError as error:
            transcription, fault = error.transcription, error
        if (mix := transcription.performance.totals.mix) in ("left", "right"):
            say(f"its two channels cancel each other: only the {mix} one is heard")
        if fault is not None:
            say(fault)
        # What broke off before its first note replaces no earlier file.
        if fault is None or transcription.notes:
            saved = ", ".join(map(str, _save(transcription, target, args, say)))
            if target != STANDARD:
                notes = len(transcription.notes)
                print(one_line(f"{path}: {notes} notes -> {saved}"), flush=True)
        return fault is None
    except BrokenPipeError:
        raise
    except OSError as error:
        elsewhere = error.filename and Path(os.fsdecode(error.filename)) != path
        why = error.strerror or error
        say(f"{error.filename}: {why}" if elsewhere else why)
    except (ValueError, RuntimeError) as error:
        say(error)
    return False


def _save(
    transcription: Transcription, target: Path, args: argparse.Namespace, say: Say
) -> Iterable[Path]:
    """The files. Raises OSError."""
    from rse_transcribe.transcription import write_csv
    from service.score.analysis import NO_BEAT, analyse, wishes_of

    wishes, ending = wishes_of(args), target.suffix.lower()
    if target == STANDARD:
        write_csv(transcription.notes, sys.stdout)
    elif ending in TABLES:
        transcription.save(target)
    elif ending in SCORES:
        score = transcription.score(target.stem, wishes)
        if not score.analysis.steady:
            say(NO_BEAT)
        return score.save(target)
    else:
        tempo = analyse(transcription.notes, wishes).tempo
        if args.quantize:
            transcription = transcription.quantized(wishes)
        transcription.save(target, tempo=tempo)
    return [target]


if __name__ == "__main__":
    sys.exit(main())
