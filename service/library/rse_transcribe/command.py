"""The command ``rse-transcribe``: recordings to notes without a server, and the other programs.

Exit status: 0 everything is transcribed; 1 something is missing, or the output's reader has gone;
2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from clients.recordings import find_recordings
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
FORMATS = (".mid", ".json", ".csv")
STANDARD_OUTPUT = Path("-")
DESCRIPTION = """\
Writes the notes of recordings as MIDI, without a server.

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
    parser.add_argument(
        "recordings", nargs="+", metavar="RECORDING", help="WAV, FLAC, OGG, MP3; folder; pattern"
    )
    parser.add_argument(
        "-o", dest="output", metavar="OUT", help="file, folder, or - (CSV); default: beside each"
    )
    parser.add_argument("--model", default="live", help="shipped weights, or .safetensors")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--lookahead-ms", type=float, metavar="MS", default=200.0, help="default: %(default)g"
    )
    parser.add_argument(
        "--instruments",
        metavar="NAME,NAME",
        default="",
        help="only these, such as violin,cello (default: all)",
    )
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
    paths = find_recordings(args.recordings)
    if not paths:
        parser.error(f"no recordings in {', '.join(args.recordings)}")
    targets = _targets(parser, paths, args.output)
    work = zip(paths, targets, strict=True)
    with ExitStack() as stack:  # one transcriber for all files, and none where none exists
        opened = cache(lambda: stack.enter_context(_transcriber(parser, args)))
        return max([_transcribe_file(parser, path, target, args, opened) for path, target in work])


def _transcriber(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Transcriber:
    from model.storage import WeightsError
    from rse_transcribe.models import DeviceError
    from rse_transcribe.recordings import Transcriber

    try:
        return Transcriber(model=args.model, device=args.device)
    except (WeightsError, DeviceError) as error:
        parser.error(str(error))


def _targets(parser: argparse.ArgumentParser, paths: list[Path], output: str | None) -> list[Path]:
    """Where each result goes, found out before the work and not after it."""
    chosen = Path(output or ".")
    if output is None:
        targets = [path.with_suffix(FORMATS[0]) for path in paths]
    elif chosen == STANDARD_OUTPUT or chosen.suffix.lower() in FORMATS and not _is_folder(output):
        if len(paths) > 1:
            parser.error(f"{len(paths)} recordings need a folder, not {output}")
        if not chosen.parent.is_dir():
            parser.error(f"there is no folder {chosen.parent}")
        targets = [chosen]
    elif chosen.suffix and len(paths) == 1 and not _is_folder(output):
        parser.error(f"{output} should end in {', '.join(FORMATS)}, or in / for a folder")
    else:
        try:
            chosen.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"{output} cannot be a folder: {error.strerror}")
        targets = [chosen / f"{path.stem}{FORMATS[0]}" for path in paths]
    twice = [target for target, count in Counter(targets).items() if count > 1]
    if twice:
        parser.error(f"two recordings would be written to {twice[0]}")
    return targets


def _is_folder(output: str) -> bool:
    return output.endswith(os.sep) or Path(output).is_dir()


def _transcribe_file(
    parser: argparse.ArgumentParser,
    path: Path,
    target: Path,
    args: argparse.Namespace,
    opened: Callable[[], Transcriber],
) -> int:
    complaint = ""
    if not path.exists():  # known without the seconds that torch takes to load
        complaint = "does not exist"
    else:
        from rse_transcribe.recordings import IncompleteError
        from rse_transcribe.transcription import write_csv
        from service.protocol.options import OptionsError

        try:
            transcription = opened().transcribe(
                path,
                lookahead_ms=args.lookahead_ms,
                instruments=[name.strip() for name in args.instruments.split(",") if name],
            )
        except IncompleteError as error:
            transcription, complaint = error.transcription, str(error)
        except OptionsError as error:
            parser.error(str(error))
        except (OSError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return INCOMPLETE
        if target == STANDARD_OUTPUT:
            write_csv(transcription.notes, sys.stdout)
        else:
            try:
                transcription.save(target)
            except OSError as error:
                complaint = complaint or str(error)
            else:
                print(f"{path}: {len(transcription.notes)} notes -> {target}", flush=True)
    if complaint:
        print(f"{path}: {complaint}", file=sys.stderr)
        return INCOMPLETE
    return WHOLE


if __name__ == "__main__":
    sys.exit(main())
