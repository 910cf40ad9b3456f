"""Recordings as a client sends them: files found by name, and raw PCM from a pipe."""

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"})
PIECE_BYTES = 1 << 16


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file or a pipe; a pipe yields whatever is available."""
    # ``read1`` returns what a pipe has; ``read`` would wait for a full piece.
    read: Any = getattr(file, "read1", file.read)
    while piece := read(PIECE_BYTES):
        yield piece


def find_recordings(arguments: Iterable[str]) -> list[Path]:
    """The files that arguments name: files, folders (searched recursively) and patterns.

    A name that matches nothing is returned as it is; opening it gives the error.
    """
    found: list[Path] = []
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            found += sorted(inside)
        elif not path.exists() and glob.has_magic(argument):
            matches = [Path(match) for match in glob.glob(argument, recursive=True)]
            found += sorted(match for match in matches if match.is_file()) or [path]
        else:
            found.append(path)
    return list(dict.fromkeys(found))
