"""API keys: `rse-transcribe keys new NAME` makes one; the server keeps only hashes.

A line of the keys file, or an entry of `RSE_KEYS`, is `NAME:SHA256` or `NAME:SHA256:LIMITS`:

    alice:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae:max_sessions=4

A key has 256 random bits, so a plain hash is safe; slow hashes are for passwords.
"""

import argparse
import hashlib
import hmac
import re
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.ranges import explained
from service.access.clients import Client

PREFIX = "rse_"  # recognised by scanners for leaked secrets

_ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?P<digest>[0-9a-f]{64})(:(?P<limits>[^:]*))?"
)


class KeysError(ValueError):
    """The keys file or setting is invalid; names the place, never a key."""


class KeyLimits(BaseModel):
    """A key's own limits, as its line states them.

    Attributes:
        max_sessions: live sessions at one time, in place of `max_sessions_per_client`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sessions: int | None = Field(default=None, gt=0, le=1_000_000)


class KeyRing:
    """The clients by the SHA-256 of their keys."""

    def __init__(self, keys: Sequence[tuple[bytes, Client]] = ()) -> None:
        self._keys = keys
        for name, count in Counter(client.name for _, client in keys).items():
            if count > 1:
                raise KeysError(f"the name {name.removeprefix('key ')} occurs twice")

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def secret(self) -> bytes:
        """Follows from the keys, and does not reveal them; without keys, random."""
        if not self._keys:
            return secrets.token_bytes(32)
        return hashlib.sha256(b"".join(sorted(digest for digest, _ in self._keys))).digest()

    def find(self, secret: str) -> Client | None:
        """The owner of a key, or None. Compares all entries, each in constant time."""
        digest = hash_key(secret)
        found = None
        for entry, client in self._keys:
            if hmac.compare_digest(entry, digest):
                found = client
        return found


def hash_key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="surrogateescape")).digest()


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def read_keys(text: str, path: str) -> KeyRing:
    """The keys of a setting (separated by spaces) and of a file (one per line, `#` comments).

    Raises:
        KeysError: the file cannot be read, or an entry is malformed.
    """
    entries = [(f"entry {n}", entry) for n, entry in enumerate(text.split(), 1)]
    if path:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KeysError(f"the keys file cannot be read: {error}") from None
        for n, line in enumerate(lines, 1):
            entry = line.partition("#")[0].strip()
            if entry:
                entries.append((f"line {n} of the keys file", entry))
    return KeyRing([_parse(where, entry) for where, entry in entries])


def _parse(where: str, entry: str) -> tuple[bytes, Client]:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise KeysError(
            f"{where} is not NAME:SHA256[:LIMITS], as `rse-transcribe keys new` prints it"
        )
    entries = filter(None, (match["limits"] or "").split(","))
    limits = [entry.partition("=")[::2] for entry in entries]
    given = dict(limits)
    try:
        own = KeyLimits.model_validate_strings(given)
    except ValidationError as error:
        first = error.errors()[0]
        complaint = explained(first, f"{first['loc'][0]} of {match['name']}")
        raise KeysError(f"{where}: {complaint}") from None
    if len(given) < len(limits):
        raise KeysError(f"{where}: {match['name']} has a limit twice")
    return bytes.fromhex(match["digest"]), Client(f"key {match['name']}", **own.model_dump())


def main(arguments: Sequence[str] | None = None, prog: str = "rse-transcribe keys") -> int:
    """Makes a key; returns the exit status."""
    about = f"`{prog} new NAME >> keys` shows the key and appends its hash to the file."
    parser = argparse.ArgumentParser(prog=prog, description=about)
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="make a key")
    new.add_argument("name", help="name of its owner; shown in logs")
    new.add_argument("--max-sessions", help="concurrent live sessions")
    given = vars(parser.parse_args(arguments))
    limits = ",".join(
        f"{field}={given[field]}" for field in KeyLimits.model_fields if given[field] is not None
    )
    secret = new_key()
    line = f"{given['name']}:{hash_key(secret).hex()}" + (f":{limits}" if limits else "")
    try:
        _parse("the new entry", line)
    except KeysError as error:
        print(error, file=sys.stderr)
        return 2
    print(line)
    print(f"The key of {given['name']}, shown only once: {secret}", file=sys.stderr)
    return 0
