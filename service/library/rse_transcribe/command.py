"""The command ``rse-transcribe``: recordings to notes, here or through a service, and the other
programs.

Exit status: 0 everything is transcribed; 1 something is missing, or the output's reader has gone;
2 wrong usage; 3 no service; 130 interrupted.
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
from typing import TYPE_CHECKING, NoReturn

from rse_transcribe import __version__
from rse_transcribe.files import MIDI, STANDARD, TABLES, find_recordings, listed, targets
from service.protocol.command_line import (
    add_result_options,
    check_writable,
    kept,
    print_any_name,
    write_whole,
)
from service.score import SCORES

if TYPE_CHECKING:
    from rse_transcribe import Transcriber, Transcription

WHOLE, INCOMPLETE, USAGE, NO_SERVICE, INTERRUPTED = 0, 1, 2, 3, 130
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
    parser.add_argument("--split", action="store_true", help="a MIDI file for each instrument")
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
    args = parser.parse_args(arguments)
    print_any_name()
    found = find_recordings(args.recordings)
    for complaint in found.complaints:
        _say(complaint)
    if not found.recordings and not found.complaints:
        parser.error(f"no recordings in {', '.join(args.recordings)}")
    try:
        work = targets(found.recordings, args.output)
    except ValueError as error:
        parser.error(str(error))
    _check_results(parser, args, work.values())
    statuses = {INCOMPLETE} if found.complaints else {WHOLE}
    with ExitStack() as stack:  # one transcriber for all files, if there are any
        opened = cache(lambda: stack.enter_context(_transcriber(parser, args, len(work) > 1)))
        taken: dict[Path, Path] = {}
        for path, target in work.items():
            if (first := taken.setdefault(target, path)) is not path:
                _say(f"{path}: {target} is that of {first}")
                statuses.add(INCOMPLETE)
                continue
            statuses.add(_transcribe_file(parser, path, target, args, opened))
    if found.left_out:
        _say(f"left out, as no recordings: {listed(found.left_out)}")
    failures = statuses - {WHOLE}
    return INCOMPLETE if len(failures) > 1 else next(iter(failures), WHOLE)


def _say(words: object) -> None:
    if sys.stderr is not None:
        print(words, file=sys.stderr)


def _check_results(
    parser: argparse.ArgumentParser, args: argparse.Namespace, results: Iterable[Path]
) -> None:
    endings = {result.suffix.lower() for result in results}
    if endings and (args.split or args.quantize) and endings.isdisjoint(MIDI):
        parser.error("--split and --quantize need a MIDI file as output")
    if not endings.isdisjoint(SCORES):
        from service.score.sheet import ScoreExtraMissing, load

        try:  # before the work and not after it
            for library in ("music21", "partitura", "verovio", *["cairosvg"] * (".pdf" in endings)):
                load(library)
        except ScoreExtraMissing as missing:
            parser.error(str(missing))


def _transcriber(
    parser: argparse.ArgumentParser, args: argparse.Namespace, several: bool
) -> Transcriber:
    from model.storage import WeightsError
    from rse_transcribe.models import AUTO, DeviceError
    from rse_transcribe.recordings import Transcriber
    from service.workers.pool import MOST_WORKERS

    try:
        # Processes take seconds to start, about as long as a single piece of music.
        processes = MOST_WORKERS if several else 0
        return Transcriber(model=args.model or AUTO, device=args.device, worker_processes=processes)
    except (WeightsError, DeviceError) as error:
        parser.error(str(error))


def _transcribe_file(
    parser: argparse.ArgumentParser,
    path: Path,
    target: Path,
    args: argparse.Namespace,
    opened: Callable[[], Transcriber],
) -> int:
    """One recording to its files; what goes wrong is said in a line, and the others go on."""

    def say(words: object) -> None:
        _say(f"{path}: {words}")

    try:
        if target != STANDARD:  # known without the seconds that torch takes to load
            target.parent.mkdir(parents=True, exist_ok=True)
            check_writable(target)
            if not (args.split and target.suffix.lower() in MIDI) and (
                complaint := kept([target], args.force)
            ):
                raise FileExistsError(complaint)
        from rse_transcribe.recordings import IncompleteError
        from service.protocol.faults import ErrorCode
        from service.protocol.options import OptionsError

        fault: IncompleteError | None = None
        try:
            transcription = _transcription(path, args, opened, say)
        except IncompleteError as error:
            transcription, fault = error.transcription, error
        except OptionsError as error:
            # The sample rate is the recording's, the other options are the same for all.
            if error.code is not ErrorCode.BAD_SAMPLE_RATE:
                parser.error(str(error))
            raise
        if (mix := transcription.performance.totals.mix) in ("left", "right"):
            say(f"its two channels cancel each other: only the {mix} one is heard")
        if fault is not None:
            say(fault)
        # What broke off before its first note replaces no earlier file.
        if fault is None or transcription.notes:
            _save(transcription, path, target, args, say)
        return WHOLE if fault is None else INCOMPLETE
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else error)
        return INCOMPLETE
    except (ValueError, RuntimeError) as error:
        say(error)
        return NO_SERVICE if type(error).__name__ == "NoServiceError" else INCOMPLETE


def _transcription(
    path: Path,
    args: argparse.Namespace,
    opened: Callable[[], Transcriber],
    say: Callable[[object], None],
) -> Transcription:
    if args.server is None:
        return opened().transcribe(
            sys.stdin.buffer if path == STANDARD else path,
            lookahead_ms=args.lookahead_ms,
            instruments=args.instruments,
            tuning_hz=args.tuning_hz,
            bends=args.bends,
        )
    from rse_transcribe import remote
    from rse_transcribe.recordings import progress_bar

    options = {
        "lookahead_ms": args.lookahead_ms,
        "model": args.model,
        "instruments": ",".join(args.instruments) if args.instruments else None,
        "tuning_hz": args.tuning_hz,
        "bends": "true" if args.bends else None,
    }
    with ExitStack() as stack:
        file = sys.stdin.buffer if path == STANDARD else stack.enter_context(path.open("rb"))
        bar = stack.enter_context(progress_bar(path.name))
        return remote.transcribe(
            file, args.server, options, lambda part: bar.update(part - bar.n), say
        )


def _save(
    transcription: Transcription,
    path: Path,
    target: Path,
    args: argparse.Namespace,
    say: Callable[[object], None],
) -> None:
    """Raises OSError: a file cannot be written, or exists and is not to be replaced."""
    from rse_transcribe.transcription import write_csv
    from service.score.analysis import NO_BEAT, analyse, wishes_of

    wishes = wishes_of(args)
    if target == STANDARD:
        write_csv(transcription.notes, sys.stdout)
        return
    saved = [target]
    if target.suffix.lower() in TABLES:
        transcription.save(target)
    elif target.suffix.lower() in SCORES:
        score = transcription.score(target.stem, wishes)
        if not score.analysis.steady:
            say(NO_BEAT)
        saved = score.save(target)
    else:
        names = transcription.instruments if args.split else ()
        files: dict[Path, str | None] = {
            target.with_suffix(f".{name}{target.suffix}"): name for name in names
        } or {target: None}
        if complaint := kept(files, args.force):
            raise FileExistsError(complaint)
        tempo = analyse(transcription.performance.notes, wishes).tempo
        if args.quantize:
            transcription = transcription.quantized(wishes)
        for file, only in files.items():
            write_whole(file, transcription.midi(tempo, only))
        saved = list(files)
    where = ", ".join(map(str, saved))
    print(f"{path}: {len(transcription.notes)} notes -> {where}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
