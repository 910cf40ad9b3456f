"""Reads API keys and creates new ones.

`rse-transcribe keys new NAME` creates a key. The server stores only hashes. Each line of the keys
file and each entry of `RSE_KEYS` has the form `NAME:SHA256`. Optional limits after the hash replace
the general limits for this client:

    alice:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    school:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08:sessions=30:uploads=8

A key has 256 random bits, so a fast hash is safe.
"""

import argparse
import hashlib
import logging
import os
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

PREFIX = "rse_"  # lets secret scanners recognise leaked keys
SCOPE_KEY = "rse.client"  # key of the client's name in the ASGI scope; set by the gate

_ENTRY = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([0-9a-f]{64})((?::(?:sessions|uploads)=[1-9][0-9]{0,5})*)"
)


class KeysError(ValueError):
    """The keys or the token secret are invalid or unreadable. The message contains no key."""


def hash_key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="surrogateescape")).digest()


class Keys:
    """Maps the SHA-256 hash of each API key to its client. False if there are no keys."""

    def __init__(self, text: str = "", path: str = "") -> None:
        """Read keys from a setting (separated by spaces) and a file (one per line, with `#`
        comments). Either may be empty. Raises KeysError if the file is unreadable, if an entry is
        invalid, or if ``text`` or ``path`` is set but there are no keys."""
        self._text, self._path = text, path
        self._version = self._file_version()
        self._clients, self._limits = _read_keys(text, path)

    def __bool__(self) -> bool:
        return bool(self._clients)

    def client(self, secret: str) -> str | None:
        """Return the name of the client with this key, or None if the key is unknown."""
        return self._clients.get(hash_key(secret))

    def has_client(self, name: str) -> bool:
        return name in self._limits

    def limit(self, name: str, kind: str) -> int | None:
        """Return the limit of a client ("sessions" or "uploads"), or None if its entry has none."""
        return self._limits.get(name, {}).get(kind)

    def reload_if_changed(self) -> None:
        if self._file_version() != self._version:
            self.reload()

    def reload(self) -> None:
        """Read the keys again. Preserve the current keys if the new ones are invalid."""
        self._version = self._file_version()
        try:
            self._clients, self._limits = _read_keys(self._text, self._path)
        except KeysError as error:
            logger.error("API keys not reloaded: %s", error)
        else:
            logger.info("API keys reloaded: clients=%d", len(self._clients))

    def _file_version(self) -> object:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def _read_keys(text: str, path: str) -> tuple[dict[bytes, str], dict[str, dict[str, int]]]:
    """Return two dictionaries: client name by key hash, and limits by client name."""
    entries = [(f"entry {n}", entry) for n, entry in enumerate(text.split(), 1)]
    if path:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KeysError(f"cannot read the keys file: {error}") from None
        stripped = ((n, line.partition("#")[0].strip()) for n, line in enumerate(lines, 1))
        entries += [(f"line {n} of the keys file", entry) for n, entry in stripped if entry]
    clients: dict[bytes, str] = {}
    limits: dict[str, dict[str, int]] = {}
    for where, entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise KeysError(
                f"{where} must be NAME:SHA256, as printed by `rse-transcribe keys new`, "
                "optionally with :sessions=N and :uploads=N"
            )
        name = f"key {match[1]}"
        if name in limits:
            raise KeysError(f"{where}: the name {match[1]} occurs twice")
        key = bytes.fromhex(match[2])
        if key in clients:
            raise KeysError(f"{where}: {name} is the same key as {clients[key]}")
        pairs = (field.split("=") for field in match[3].split(":")[1:])
        limits[name] = {kind: int(number) for kind, number in pairs}
        clients[key] = name
    if (text or path) and not clients:
        raise KeysError(
            "no keys in RSE_KEYS_FILE or RSE_KEYS, so every client would be rejected; "
            "add one with `rse-transcribe keys new NAME >> FILE`"
        )
    return clients, limits


def main(arguments: Sequence[str] | None = None, prog: str = "rse-transcribe keys") -> int:
    about = f"`{prog} new NAME >> keys` prints the key and appends its hash to the file."
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("command", choices=["new"])
    parser.add_argument("name", help="name of the key's owner, as shown in logs")
    name = parser.parse_args(arguments).name
    secret = PREFIX + secrets.token_urlsafe(32)
    line = f"{name}:{hash_key(secret).hex()}"
    if _ENTRY.fullmatch(line) is None:
        allowed = "up to 64 letters, digits, '.', '_', '-', starting with a letter or digit"
        print(f"invalid name {name!r}: use {allowed}", file=sys.stderr)
        return 2
    print(line)
    print(f"API key of {name} (shown only once): {secret}", file=sys.stderr)
    return 0
