"""Functions that the command lines share: help texts, Ctrl-C during imports, atomic writes."""

import argparse
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

INTERRUPTED = 130  # exit status that shells report after Ctrl-C

_Number = TypeVar("_Number", int, float)


def documented_parser(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of ``python -m MODULE``. Its help shows ``about``, usually the module's
    docstring, unchanged."""
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"python -m {module}", None, about, formatter_class=formatter)


def at_least(minimum: _Number) -> Callable[[str], _Number]:
    """Return a converter for the ``type`` argument of an argparse option. It accepts finite numbers
    of at least ``minimum``, and returns them in the type of ``minimum``."""

    def parse(text: str) -> _Number:
        value = type(minimum)(text)
        if not minimum <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be at least {minimum:g}, not {text}")
        return value

    parse.__name__ = type(minimum).__name__  # argparse names it in its errors
    return parse


@contextmanager
def interruptible_imports(program: str) -> Iterator[None]:
    """Print one line and exit if Ctrl-C interrupts the imports, which take seconds with torch."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted; nothing was saved\n")
        sys.exit(INTERRUPTED)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically, and replace it if it exists. If it is a symbolic link, write to its
    target. Raises OSError."""
    try:
        replace_file(path.resolve(), lambda file: file.write(data))
    except OSError as error:  # its file name is temporary, and meaningless to the user
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call ``write`` with a temporary file, then replace the file at ``path`` with it atomically.
    Several processes may replace a file at once. Readers always get a complete old or new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The temporary name does not contain the file's name, which may have the maximum length.
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
