"""Finds the recordings of the command line, and chooses the names of the output files."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from service.score import SCORES

SUFFIXES = frozenset(
    f".{kind}"
    for kind in (
        "wav wave w64 aif aiff aifc caf au snd voc flac ogg oga opus spx mp3 mp2 aac m4a m4b wma "
        "amr wv tta ape dsf dff mp4 m4v mov mkv mka webm wmv asf avi 3gp 3g2 ts mts m2ts mpg mpeg "
        "vob flv f4v ac3 eac3 dts sph nist ircam sf pvf avr paf sds sox shn tak mpc oma aa3 rm ra "
        "iff 8svx svx mxf wtv nut"
    ).split()
)
MIDI = (".mid", ".midi")
RESULTS = (*MIDI, ".json", ".csv", *SCORES)
FORMATS = ("mid", "json", "csv", "musicxml", "mxl", "pdf")
_SAME = {".midi": ".mid", ".xml": ".musicxml"}  # suffixes with the same format
STDIO = Path("-")  # standard input or output

_ENDING = re.compile(r"\.\w+")  # matches ".wav", but not ". 5 in C" of "No. 5 in C"


@dataclass
class Inputs:
    """Input files of the command, and messages about inputs that are missing or unreadable.

    ``recordings`` maps the path of each recording to its path relative to the folder argument. A
    file argument maps to its name, and "-" to "stdin".
    ``skipped`` has the files in folders that are neither recordings nor results.
    """

    recordings: dict[Path, Path] = field(default_factory=dict)
    skipped: list[Path] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def find_recordings(arguments: Iterable[str]) -> Inputs:
    """Return the input files for arguments that are files, folders or "-", each file once. Folders
    are searched recursively, except for links to folders in them."""
    inputs = Inputs()

    def location(path: Path) -> str:
        return os.path.join(os.path.realpath(path.parent), path.name)

    for argument in arguments:
        path = Path(argument)
        if "://" in argument:
            inputs.errors.append(f"{argument}: not a file; download the recording first")
        elif not argument:  # `Path` would make it the current folder
            inputs.errors.append("'': No such file or directory")
        elif path == STDIO:
            inputs.recordings[path] = Path("stdin")
        elif os.path.isdir(path):
            _search(path, inputs)
        else:
            try:
                path.stat()
                inputs.recordings.setdefault(path, Path(path.name))
            except OSError as error:
                inputs.errors.append(f"{argument}: {error.strerror}")
    # Overlapping folders, which may be relative or linked, contain the same files.
    first: dict[str, Path] = {}
    for path in inputs.recordings:
        first.setdefault(location(path), path)
    inputs.recordings = {path: inputs.recordings[path] for path in first.values()}
    skipped: dict[str, Path] = {}
    for path in inputs.skipped:
        skipped.setdefault(location(path), path)
    inputs.skipped = [path for at, path in skipped.items() if at not in first]
    return inputs


def _search(folder: Path, inputs: Inputs) -> None:
    """Add the files of a folder to the inputs."""

    def on_error(error: OSError) -> None:
        inputs.errors.append(f"{error.filename}: {error.strerror}")

    files = []
    for root, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inputs.skipped += [Path(root, name) for name in folders if os.path.islink(Path(root, name))]
        files += [Path(root, name) for name in names if not name.startswith(".")]
    for file in sorted(files):
        special = os.path.exists(file) and not os.path.isfile(file)  # a pipe would never end
        if file.suffix.lower() in SUFFIXES and not special:
            inputs.recordings.setdefault(file, file.relative_to(folder))
        elif file.suffix.lower() not in RESULTS:
            inputs.skipped.append(file)


def targets(
    inputs: Mapping[Path, Path], output: str | None, kind: str | None = None
) -> dict[Path, Path]:
    """Return the output file of each recording. Recordings with the same name in different
    folders may have the same output file.

    Args:
        output: a file with a suffix in ``RESULTS``; a folder, in which the subfolders of the
            recordings are created; "-"; or None for files next to the recordings.
        kind: one of ``FORMATS``. None means CSV for "-", the suffix of ``output`` if it is a file,
            else MIDI.

    Raises:
        ValueError: the output is invalid, or conflicts with ``kind`` or the number of recordings.
    """
    suffix = f".{kind or FORMATS[0]}"
    if output is None:
        return _named({path: path.with_name(name.name) for path, name in inputs.items()}, suffix)
    target = Path(output)
    is_folder = os.path.isdir(target) or output.endswith(("/", os.sep))
    is_file = target == STDIO or target.suffix.lower() in RESULTS
    is_misnamed_file = not is_file and len(inputs) == 1 and _ENDING.fullmatch(target.suffix)
    if is_folder or not (is_file or is_misnamed_file):
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{output} cannot be a folder: {error.strerror}") from None
        return _named({path: target / name for path, name in inputs.items()}, suffix)
    if is_misnamed_file:
        raise ValueError(f"{output} should end in {', '.join(RESULTS)}, or in / for a folder")
    ending = ".csv" if target == STDIO else target.suffix.lower()
    if kind is not None and suffix not in (ending, _SAME.get(ending)):
        if target == STDIO:
            message = f"standard output is always CSV: omit --format {kind}, or name an output file"
        else:
            message = f"{output} is a {ending} file: omit --format {kind} or rename {output}"
        raise ValueError(message)
    if len(inputs) > 1:
        raise ValueError(f"{len(inputs)} recordings need a folder, not {output}")
    if not os.path.isdir(target.parent):
        raise ValueError(f"there is no folder {target.parent}")
    return dict.fromkeys(inputs, target)


def _named(paths: Mapping[Path, Path], suffix: str) -> dict[Path, Path]:
    """Name the results: song.mid for song.wav, but song.wav.mid if there is also a song.mp3, or a
    Song.mp3, because many file systems ignore case."""

    def short(path: Path) -> Path:
        is_ending = path.suffix.lower() in SUFFIXES
        return path.with_name((path.stem if is_ending else path.name) + suffix)

    def key(path: Path) -> str:
        return str(short(path)).casefold()

    uses = Counter(map(key, paths.values()))
    return {
        source: short(path) if uses[key(path)] == 1 else path.with_name(path.name + suffix)
        for source, path in paths.items()
    }
