"""The command ``rse-transcribe``: recordings to notes without a server, and the other programs.

Exit status: 0 everything is transcribed; 1 something is missing, or the output's reader has gone;
2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from clients.recordings import (
    MIDI,
    add_result_options,
    check_midi_options,
    find_recordings,
    kept,
    print_any_name,
    save_midi,
    targets,
)
from rse_transcribe import __version__

if TYPE_CHECKING:
    from rse_transcribe import Transcriber

WHOLE, INCOMPLETE, USAGE, INTERRUPTED = 0, 1, 2, 130
PROGRAMS = {  # module, and the extra that it needs
    "serve": ("service.__main__", ""),
    "live": ("clients.microphone", "[clients]"),
    "keys": ("service.access.keys", ""),
    "train": ("training.run", "[training]"),
    "evaluate": ("training.evaluate", "[training]"),
}
TABLES = (".json", ".csv")
STANDARD_OUTPUT = Path("-")
DESCRIPTION = """\
Writes the notes of recordings (WAV, FLAC, OGG, MP3) as MIDI, without a server.

  rse-transcribe song.wav -o song.mid      a recording; also to .json and .csv
  rse-transcribe album/ "take-*.wav" -o midi/    folders and patterns
  rse-transcribe serve                     the service on 127.0.0.1:8000
  rse-transcribe live                      a microphone, through that service
  rse-transcribe keys new NAME             an API key for that service
  rse-transcribe train --help              training
  rse-transcribe evaluate --help           accuracy on recordings with labels
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line; the usage is in --help."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rse-transcribe",
        usage="rse-transcribe RECORDING ... [-o OUT] [options]",
        description=DESCRIPTION,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=27),
    )
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help=argparse.SUPPRESS)
    parser.add_argument(
        "-o",
        dest="output",
        metavar="OUT",
        help="file, folder, or - (CSV); default: next to each recording",
    )
    parser.add_argument("--model", default="live", help="shipped weights, or .safetensors")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--lookahead-ms", type=float, metavar="MS", default=200.0, help="default: %(default)g"
    )
    parser.add_argument("--split", action="store_true", help="a MIDI file for each instrument")
    add_result_options(parser)
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
        print(f"{missing.name} is missing: pip install 'rse-transcribe{extra}'", file=sys.stderr)
        return INCOMPLETE
    return status


def _transcribe(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    args = parser.parse_args(arguments)
    print_any_name()
    found = find_recordings(args.recordings)
    if not found:
        parser.error(f"no recordings in {', '.join(args.recordings)}")
    if args.output == str(STANDARD_OUTPUT):
        if len(found) > 1:
            parser.error(f"{len(found)} recordings need a folder, not {args.output}")
        work = dict.fromkeys(found, STANDARD_OUTPUT)
    else:
        try:
            work = targets(found, args.output, MIDI + TABLES)
        except ValueError as error:
            parser.error(str(error))
    check_midi_options(parser, args, work.values())
    with ExitStack() as stack:  # one transcriber for all files, and none where none exists
        opened = cache(lambda: stack.enter_context(_transcriber(parser, args, len(found) > 1)))
        return max(
            [_transcribe_file(parser, path, target, args, opened) for path, target in work.items()]
        )


def _transcriber(
    parser: argparse.ArgumentParser, args: argparse.Namespace, several: bool
) -> Transcriber:
    from model.storage import WeightsError
    from rse_transcribe.models import DeviceError
    from rse_transcribe.recordings import Transcriber
    from service.engine.segments import MOST_SEGMENTS

    try:
        # Processes take seconds to start, about as long as a single piece of music.
        processes = MOST_SEGMENTS if several else 0
        return Transcriber(model=args.model, device=args.device, worker_processes=processes)
    except (WeightsError, DeviceError) as error:
        parser.error(str(error))


def _transcribe_file(
    parser: argparse.ArgumentParser,
    path: Path,
    target: Path,
    args: argparse.Namespace,
    opened: Callable[[], Transcriber],
) -> int:

    def say(words: object) -> None:
        print(f"{path}: {words}", file=sys.stderr)

    in_parts = args.split and target.suffix.lower() in MIDI
    result = [] if in_parts or target == STANDARD_OUTPUT else [target]
    # Known without the seconds that torch takes to load.
    complaint = kept(result, args.force) if path.exists() else "does not exist"
    if not complaint:
        from rse_transcribe.recordings import IncompleteError
        from rse_transcribe.transcription import write_csv
        from service.protocol.faults import ErrorCode
        from service.protocol.options import OptionsError

        try:
            transcription = opened().transcribe(
                path, lookahead_ms=args.lookahead_ms, instruments=args.instruments
            )
        except IncompleteError as error:
            transcription, complaint = error.transcription, str(error)
        except (OSError, ValueError) as error:
            # The sample rate is the recording's, the other options are the same for all.
            if isinstance(error, OptionsError) and error.code is not ErrorCode.BAD_SAMPLE_RATE:
                parser.error(str(error))
            say(error)
            return INCOMPLETE
        if target == STANDARD_OUTPUT:
            write_csv(transcription.notes, sys.stdout)
        else:
            try:
                if target.suffix.lower() in TABLES:
                    transcription.save(target)
                    saved = [target]
                else:
                    saved = save_midi(transcription, [target], args, say)
            except OSError as error:
                complaint = f"{complaint}; {error}" if complaint else str(error)
            else:
                where = ", ".join(map(str, saved))
                print(f"{path}: {len(transcription.notes)} notes -> {where}", flush=True)
    if complaint:
        say(complaint)
        return INCOMPLETE
    return WHOLE


if __name__ == "__main__":
    sys.exit(main())
