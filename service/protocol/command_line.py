"""Options and file handling shared by the commands that write notes."""

import errno
import io
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from model.commands import write_atomically as write_atomically

START_HINT = "; `rse-transcribe serve` starts a service"  # added if a connection is refused
# Environment variable with the API key of a client. The key is not an argument, because other users
# of the machine can see command lines.
KEY_VARIABLE = "RSE_KEY"


def add_result_options(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace existing files")
    instruments = "assign notes to these instruments only"
    tuning = "frequency of A4 (default: estimated)"
    bends = "vibrato and glides as pitch bends (MPE)"
    parser.add_argument("--instruments", type=_names, metavar="violin,cello", help=instruments)
    parser.add_argument("--tuning-hz", type=float, metavar="HZ", help=tuning)
    parser.add_argument("--bends", action="store_true", help=bends)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip().lower()))


def api_key() -> str:
    """Return the API key in ``$RSE_KEY``; empty if there is none. Raises ValueError, with a message
    that does not contain the key, if the key cannot be sent in a header."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{KEY_VARIABLE} is not an API key: it contains invalid characters")
    return key


def escape_names() -> None:
    """Let standard output escape the characters that its encoding lacks, as in file names."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as "1 note" or "2 notes"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def one_line(text: object) -> str:
    """Escape line breaks and control characters, for a terminal or log."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text)
    )


def check_not_existing(files: Iterable[Path], force: bool) -> None:
    """Raise FileExistsError if a file is a folder, or exists and ``force`` is False."""
    for file in files:
        if file.is_dir():
            raise FileExistsError(f"{file} is a folder")
        if file.exists() and not force:
            raise FileExistsError(f"{file} exists; use --force to replace it")


def check_writable(file: Path) -> None:
    """Raise OSError if the name is too long, or the folder of the file is not writable."""
    with suppress(FileNotFoundError):
        file.stat()
    folder = file.resolve().parent
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
