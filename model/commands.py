"""What command lines have in common: help, and files that are replaced whole."""

import argparse
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def documented_parser(program: str, about: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows a module's docstring as it stands."""
    return argparse.ArgumentParser(
        prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces a file's content atomically."""
    replace_file(path, lambda file: file.write(data))


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replaces a file by what ``write`` writes; several processes may do so at once. Readers see
    the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not named after the file, whose name may be as long as names can be.
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
