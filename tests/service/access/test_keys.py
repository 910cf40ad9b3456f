"""Tests of API keys: creating them, and reading them from a file and a setting."""

import os
from pathlib import Path

import pytest

from service.access.keys import Keys, KeysError, hash_key, main
from tests.commands import run

DIGEST = "0" * 64


def test_new_key_is_accepted_from_the_keys_file(tmp_path: Path) -> None:
    status, entry, shown = run(main, "new", "alice")
    assert status == 0
    secret = shown.split()[-1]
    assert secret not in entry
    path = tmp_path / "keys"
    path.write_text(f"# a comment\n\n{entry}bob:{DIGEST} # another\n")
    keys = Keys(f"carol:{hash_key('rse_c').hex()}", str(path))
    assert keys.client(secret) == "key alice"
    assert keys.client("rse_c") == "key carol"
    assert keys.client("rse_b") is None
    assert keys.has_client("key bob")


@pytest.mark.parametrize(
    "entry",
    [
        "alice",
        f"alice:{DIGEST[1:]}",
        f"al ice:{DIGEST}",
        f"alice:{DIGEST}:dreams=1",
        f"alice:{DIGEST}:uploads=0",
    ],
)
def test_malformed_entry_is_reported_with_its_line(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"\n{entry}\n")
    with pytest.raises(KeysError, match="line 2"):
        Keys("", str(path))


def test_duplicate_and_missing_keys_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="alice"):
        Keys(2 * f"alice:{DIGEST} ", "")
    with pytest.raises(KeysError, match="bob is the same key as key alice"):
        Keys(f"alice:{DIGEST} bob:{DIGEST}")
    with pytest.raises(KeysError, match="cannot read"):
        Keys("", str(tmp_path / "none"))
    with pytest.raises(KeysError, match="no keys"):
        Keys(" ", "")
    assert run(main, "new", "two words")[:2] == (2, "")


def test_entry_sets_limits_of_its_client() -> None:
    keys = Keys(f"school:{DIGEST}:sessions=30:uploads=8 bob:{DIGEST[1:]}1")
    assert keys.limit("key school", "sessions") == 30
    assert keys.limit("key school", "uploads") == 8
    assert keys.limit("key bob", "sessions") is None
    assert keys.limit("address 192.0.2.7", "sessions") is None


def test_changed_file_is_reloaded_unless_invalid(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    alice, bob = (f"{name}:{hash_key(name).hex()}\n" for name in ("alice", "bob"))
    path.write_text(alice)
    keys = Keys("", str(path))
    path.write_text(alice + bob)
    assert not keys.has_client("key bob")
    keys.reload_if_changed()
    assert keys.has_client("key bob")
    path.write_text("nonsense")
    keys.reload_if_changed()
    os.unlink(path)
    keys.reload()
    assert keys.client("alice") == "key alice"
    path.write_text(bob)
    keys.reload_if_changed()
    assert keys.client("alice") is None
