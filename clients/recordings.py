"""Recordings as a client sends them: files found by name, and raw PCM from a pipe."""

import glob
import io
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"})
PIECE_BYTES = 1 << 16
MIDI = (".mid", ".midi")
"""Endings of MIDI files."""


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file or a pipe; a pipe yields whatever is available."""
    # ``read1`` returns what a pipe has; ``read`` would wait for a full piece.
    read: Any = getattr(file, "read1", file.read)
    while piece := read(PIECE_BYTES):
        yield piece


def find_recordings(arguments: Iterable[str]) -> dict[Path, Path]:
    """The files that arguments name: files, folders (searched recursively) and patterns.

    A name that matches nothing is returned as it is; opening it gives the error.

    Returns:
        For each file its path within the folder that was named; otherwise its bare name.
    """
    found: dict[Path, Path] = {}
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            files = sorted(inside)
        elif not path.exists() and glob.has_magic(argument):
            matches = [Path(match) for match in glob.glob(argument, recursive=True)]
            files = sorted(match for match in matches if match.is_file()) or [path]
        else:
            files = [path]
        for file in files:
            found.setdefault(file, file.relative_to(path if path.is_dir() else file.parent))
    return found


def targets(
    found: Mapping[Path, Path], output: str | None, endings: Sequence[str]
) -> dict[Path, Path]:
    """Where the result of each recording goes, found out before the work and not after it.

    Args:
        found: recordings, from ``find_recordings``.
        output: a file with one of the endings; a folder, which is made, and keeps the folders of
            the recordings; None: beside each.

    Raises:
        ValueError: no such place, or two recordings would be written to the same.
    """
    chosen = Path(output or ".")
    is_folder = chosen.is_dir() or (output or "").endswith(os.sep)
    if output is None:
        places = [path.with_name(name.name) for path, name in found.items()]
    elif chosen.suffix.lower() in endings and not is_folder:
        if len(found) > 1:
            raise ValueError(f"{len(found)} recordings need a folder, not {output}")
        if not chosen.parent.is_dir():
            raise ValueError(f"there is no folder {chosen.parent}")
        return dict.fromkeys(found, chosen)
    elif chosen.suffix and len(found) == 1 and not is_folder:
        raise ValueError(f"{output} should end in {', '.join(endings)}, or in / for a folder")
    else:
        places = [chosen / name for name in found.values()]
        try:
            for place in places:
                place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{output} cannot be a folder: {error.strerror}") from None
    sources: dict[Path, Path] = {}
    for source, place in zip(found, places, strict=True):
        target = place.with_suffix(endings[0])
        if (first := sources.setdefault(target, source)) != source:
            raise ValueError(f"{first} and {source} would both be written to {target}")
    return {source: target for target, source in sources.items()}


def add_result_options(parser: ArgumentParser) -> None:
    """What all command lines let one choose of their notes and files."""
    from service.protocol.tempo import add_tempo_option  # numpy, which other programs may not need

    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--instruments",
        type=_names,
        metavar="NAME,NAME",
        help="only these, such as violin,cello (default: all)",
    )
    add_tempo_option(parser)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip().lower()))


def print_any_name() -> None:
    """From now on standard output takes file names that its encoding lacks, escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def check_midi_options(parser: ArgumentParser, options: Namespace, results: Iterable[Path]) -> None:
    """Ends the program if ``--split`` or ``--tempo`` is given and no result is a MIDI file."""
    given = options.split or options.tempo is not parser.get_default("tempo")
    if given and not any(result.suffix.lower() in MIDI for result in results):
        parser.error("--split and --tempo need a MIDI file as output")


def kept(files: Iterable[Path], force: bool) -> str:
    """What to say instead of replacing files; empty if they may be written."""
    for file in files:
        if file.is_dir():
            return f"{file} is a folder"
        if file.exists() and not force:
            return f"{file} exists; --force replaces it"
    return ""


def save_midi(
    music: Any, targets: Iterable[Path], options: Namespace, say: Callable[[str], None]
) -> list[Path]:
    """Write notes to MIDI files, with ``--split`` one for each instrument beside where one of them
    all would be; returns the files.

    Args:
        music: ``notes`` with their ``onset_s``, ``instruments``, and ``midi(beat, only)``.
        options: ``split``, ``tempo`` and ``force``.
        say: called with a message if the notes keep to no beat.

    Raises:
        OSError: a file cannot be written, or exists and is not to be replaced.
    """
    from service.protocol.tempo import beat_of  # numpy, which other programs may not need

    files: dict[Path, str | None] = {}
    for target in targets:
        names = music.instruments if options.split else ()
        named = {target.with_suffix(f".{name}{target.suffix}"): name for name in names}
        files |= named or {target: None}
    if complaint := kept(files, options.force):
        raise FileExistsError(complaint)
    if files:
        beat = beat_of([note.onset_s for note in music.notes], options.tempo, say)
        for file, only in files.items():
            file.write_bytes(music.midi(beat, only))
    return list(files)
