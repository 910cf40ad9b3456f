"""API keys: `rse-transcribe keys new NAME` makes one; the server keeps only hashes.

A line of the keys file, or an entry of `RSE_KEYS`, is `NAME:SHA256[:max_sessions=N]`:

    alice:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae:max_sessions=4

A key has 256 random bits, so a plain hash is safe; slow hashes are for passwords.
"""

import argparse
import hashlib
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from service.access.clients import Client

PREFIX = "rse_"  # recognised by scanners for leaked secrets

_ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?P<digest>[0-9a-f]{64})"
    r"(:max_sessions=(?P<max_sessions>[1-9][0-9]{0,5}))?"
)


class KeysError(ValueError):
    """The keys file or setting is invalid; names the place, never a key."""


Keys = dict[bytes, Client]  # the clients by the SHA-256 of their keys


def hash_key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="surrogateescape")).digest()


def read_keys(text: str, path: str) -> Keys:
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
        stripped = ((n, line.partition("#")[0].strip()) for n, line in enumerate(lines, 1))
        entries += [(f"line {n} of the keys file", entry) for n, entry in stripped if entry]
    clients: Keys = {}
    for where, entry in entries:
        digest, client = _parse(where, entry)
        if client.name in {known.name for known in clients.values()}:
            raise KeysError(f"{where}: the name {client.name.removeprefix('key ')} occurs twice")
        clients[digest] = client
    return clients


def _parse(where: str, entry: str) -> tuple[bytes, Client]:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise KeysError(
            f"{where} is not NAME:SHA256[:max_sessions=N], as `rse-transcribe keys new` prints it"
        )
    most = match["max_sessions"]
    return bytes.fromhex(match["digest"]), Client(
        f"key {match['name']}", int(most) if most else None
    )


def main(arguments: Sequence[str] | None = None, prog: str = "rse-transcribe keys") -> int:
    """Makes a key; returns the exit status."""
    about = f"`{prog} new NAME >> keys` shows the key and appends its hash to the file."
    parser = argparse.ArgumentParser(prog=prog, description=about)
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="make a key")
    new.add_argument("name", help="name of its owner; shown in logs")
    new.add_argument("--max-sessions", metavar="N", help="concurrent live sessions")
    options = parser.parse_args(arguments)
    secret = PREFIX + secrets.token_urlsafe(32)
    line = f"{options.name}:{hash_key(secret).hex()}"
    if options.max_sessions is not None:
        line += f":max_sessions={options.max_sessions}"
    try:
        _parse("the new entry", line)
    except KeysError as error:
        print(error, file=sys.stderr)
        return 2
    print(line)
    print(f"The key of {options.name}, shown only once: {secret}", file=sys.stderr)
    return 0
