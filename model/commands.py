"""Help, Ctrl-C during imports and atomic file writes, shared by all command lines."""

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

INTERRUPTED = 130  # exit status, as a shell's after Ctrl-C


def documented_parser(program: str, about: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows a module's docstring unchanged."""
    return argparse.ArgumentParser(
        prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@contextmanager
def interruptible_imports(program: str) -> Iterator[None]:
    """Exit with one line if Ctrl-C interrupts imports, which take seconds with torch."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted; nothing is saved\n")
        sys.exit(INTERRUPTED)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically."""
    replace_file(path, lambda file: file.write(data))


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace a file atomically by the output of ``write``. Several processes may do so at once.
    Readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file's name may already have the maximum length, so it is not part of this one.
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
