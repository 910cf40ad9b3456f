"""Functions for all command lines: help texts, Ctrl-C during imports, atomic file writes."""

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

INTERRUPTED = 130  # exit status that shells report after Ctrl-C


def documented_parser(program: str, about: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows ``about``, usually a module's docstring, unchanged in its help."""
    return argparse.ArgumentParser(
        prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@contextmanager
def interruptible_imports(program: str) -> Iterator[None]:
    """Print one line and exit if Ctrl-C interrupts imports. Importing torch takes seconds."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted; nothing is saved\n")
        sys.exit(INTERRUPTED)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically."""
    replace_file(path, lambda file: file.write(data))


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace a file atomically with the output of ``write``. Several processes may do so at once.
    Readers get either the old or the new content, complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file's name may have the maximum length, so the temporary name does not contain it.
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
