"""What the command lines that write notes have in common: options, and files that are never half
written."""

import errno
import io
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

from model import commands


def add_result_options(parser: ArgumentParser) -> None:
    """What they let one choose of their notes and files."""
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    names, hz = "only these instruments", "of A4 (default: the performance's)"
    bends = "vibrato and glides: pitch bends (MPE), also in JSON"
    parser.add_argument("--instruments", type=_names, metavar="violin,cello", help=names)
    parser.add_argument("--tuning-hz", type=float, metavar="HZ", help=hz)
    parser.add_argument("--bends", action="store_true", help=bends)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip().lower()))


def escape_names() -> None:
    """From now on standard output takes file names that its encoding lacks, escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def one_line(words: object) -> str:
    """For a terminal or a log: names may have line breaks and control characters."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in str(words)
    )


def refuse_existing(files: Iterable[Path], force: bool) -> None:
    """Raises FileExistsError if one of the files is not to be replaced."""
    for file in files:
        if file.is_dir():
            raise FileExistsError(f"{file} is a folder")
        if file.exists() and not force:
            raise FileExistsError(f"{file} exists; --force replaces it")


def write_atomically(file: Path, data: bytes) -> None:
    """Write a file, or leave everything as it was; a link stays one. Raises OSError."""
    try:
        commands.write_atomically(file.resolve(), data)
    except OSError as error:  # of a file aside, whose name would tell nobody anything
        raise OSError(error.errno, error.strerror, str(file)) from error


def check_writable(file: Path) -> None:
    """Raises OSError if the file could not be written."""
    file.exists()  # its name may be too long
    folder = file.resolve().parent
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
