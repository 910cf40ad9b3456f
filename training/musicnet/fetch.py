"""Fetch MusicNet from its public record: ``python -m training.musicnet.fetch DIR``.

Downloads 11 GB, verifies the record's checksum and unpacks the archive into DIR (another 22 GB in
the meantime). Nothing else in this package uses the network. An interrupted download retries a few
times; running the command again resumes it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

from training.commands import documented_parser
from training.musicnet.layout import FOLDERS, ArchiveError, find

RECORD = "https://zenodo.org/api/records/5120004"
FILE = "musicnet.tar.gz"
TIMEOUT_S = 60.0  # without a byte
ATTEMPTS = 5  # in a row without progress
PAUSE_S = 5.0  # before another attempt
CHUNK = 1 << 20  # bytes
NETWORK_ERRORS = (
    urllib.error.URLError,
    ConnectionError,
    TimeoutError,
    http.client.HTTPException,
)
UNPACKED = 2.0  # upper bound of size on disk over size of the download


@dataclass(frozen=True)
class Download:
    """A file of the record."""

    url: str
    size: int
    """Bytes."""
    checksum: str
    """Algorithm and hexadecimal digest, as "md5:..."."""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = documented_parser("training.musicnet.fetch", __doc__)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--record", default=RECORD, help="address of the record (%(default)s)")
    parser.add_argument("--keep", action="store_true", help=f"keep {FILE} beside what it held")
    options = parser.parse_args(arguments)
    try:
        fetch(options.folder, options.record, options.keep)
        found = find(options.folder)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to resume", file=sys.stderr)
        return 1
    except (ArchiveError, OSError, http.client.HTTPException, tarfile.TarError) as error:
        print(f"training.musicnet.fetch: {error}", file=sys.stderr)
        return 1
    print(f"{options.folder}: {len(found)} recordings")
    return 0


def fetch(folder: Path, record: str = RECORD, keep: bool = False) -> None:
    """Downloads, verifies and unpacks the archive; finished steps are not repeated.

    Raises ArchiveError for an unexpected record or file and OSError if network or disk fail; the
    downloaded part stays.
    """
    names = [name for pair in FOLDERS for name in pair]
    for base in (folder, folder / "musicnet"):
        if all((base / name).is_dir() for name in names):
            return
    folder.mkdir(parents=True, exist_ok=True)
    packed = folder / FILE
    if not packed.exists():
        wanted = describe(record)
        partial = packed.with_name(FILE + ".partial")
        have = partial.stat().st_size if partial.exists() else 0
        check_space(folder, int(wanted.size * (1 + UNPACKED)) - have)
        download(wanted, partial)
        verify(partial, wanted.checksum)
        partial.replace(packed)
    unpack(packed, folder)
    if not keep:
        packed.unlink()


def describe(record: str) -> Download:
    """The archive's file in a record. Raises ArchiveError if the record is incomplete."""
    with _open(record) as answer:
        text = answer.read()
    try:
        (entry,) = (file for file in json.loads(text)["files"] if file["key"] == FILE)
        wanted = Download(entry["links"]["self"], int(entry["size"]), entry["checksum"])
        algorithm, _, digest = wanted.checksum.partition(":")
        if not digest or algorithm not in hashlib.algorithms_available:
            raise ValueError(f"unknown checksum {wanted.checksum!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(f"{record} does not describe {FILE}: {error!r}") from error
    return wanted


def download(wanted: Download, partial: Path) -> None:
    """Completes a partial download. Raises OSError if the network fails repeatedly."""
    failures = 0
    with tqdm(total=wanted.size, unit="B", unit_scale=True, desc=FILE) as bar:
        while (have := partial.stat().st_size if partial.exists() else 0) < wanted.size:
            bar.update(have - bar.n)
            problem: Exception | None = None
            try:
                _append(wanted, partial, have, bar)
            except NETWORK_ERRORS as error:  # not those of the disk
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    raise
                problem = error
            if partial.exists() and partial.stat().st_size > have:
                failures = 0
                continue
            failures += 1
            if failures == ATTEMPTS:
                raise OSError(f"{wanted.url} broke off at {have} of {wanted.size} bytes: {problem}")
            time.sleep(PAUSE_S)


def _append(wanted: Download, partial: Path, have: int, bar: tqdm[Any]) -> None:
    """Appends the bytes from `have` on that one connection delivers."""
    with _open(wanted.url, {"Range": f"bytes={have}-"} if have else {}) as answer:
        resumed = answer.status == http.client.PARTIAL_CONTENT
        if not resumed:  # the server does not support ranges: start over
            bar.reset()
        with partial.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))


def verify(path: Path, checksum: str) -> None:
    """Raises ArchiveError and removes the file if its checksum is not the record's."""
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        path.unlink()
        raise ArchiveError(
            f"{path} was damaged on its way ({algorithm} {found}, expected {expected}) and has "
            "been removed: fetch it again"
        )


def unpack(packed: Path, folder: Path) -> None:
    """Unpacks the archive's folders, all or none of them. Raises ArchiveError."""
    beside = folder / "unpacking"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with tarfile.open(packed) as archive:
            for member in tqdm(archive, unit=" files", desc="unpacking"):
                archive.extract(member, beside, filter="data")
        base = next((path.parent for path in beside.glob("**/train_data")), None)
        if base is None:
            raise ArchiveError(f"{packed} is not MusicNet: it holds no train_data")
        find(base)
        for name in (name for pair in FOLDERS for name in pair):
            if (base / name).is_dir():
                (base / name).rename(folder / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_space(folder: Path, wanted: int) -> None:
    """Raises ArchiveError if the disk is too small."""
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise ArchiveError(f"{folder} needs {wanted / 1e9:.1f} GB and has {free / 1e9:.1f} GB free")


def _open(url: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ArchiveError(f"not an address on the web: {url!r}")
    answer: http.client.HTTPResponse = urllib.request.urlopen(
        urllib.request.Request(url, headers=headers or {}), timeout=TIMEOUT_S
    )
    return answer


if __name__ == "__main__":
    sys.exit(main())
