"""API keys: made, kept as hashes, read from a file and from a setting. Tokens: valid for a short
time, at every server with the same keys."""

import time
from pathlib import Path

import pytest

from service.access.keys import (
    TOKEN_LIFETIME_S,
    Keys,
    KeysError,
    Tokens,
    hash_key,
    main,
    read_keys,
)

DIGEST = "0" * 64


def test_a_new_key_opens_what_its_line_is_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "alice"]) == 0
    said = capsys.readouterr()
    secret = said.err.split()[-1]
    assert secret not in said.out
    path = tmp_path / "keys"
    path.write_text("# who may\n\n" + said.out + f"bob:{DIGEST} # his\n")
    assert read_keys(f"carol:{hash_key('rse_c').hex()}", str(path)) == {
        hash_key(secret): "key alice",
        bytes(32): "key bob",
        hash_key("rse_c"): "key carol",
    }


@pytest.mark.parametrize(
    "entry", ["alice", f"alice:{DIGEST[1:]}", f"al ice:{DIGEST}", f"alice:{DIGEST}:max_dreams=1"]
)
def test_malformed_entries_are_reported_with_their_line(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"\n{entry}\n")
    with pytest.raises(KeysError, match="line 2"):
        read_keys("", str(path))


def test_what_is_there_twice_or_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeysError, match="alice"):
        read_keys(2 * f"alice:{DIGEST} ", "")
    with pytest.raises(KeysError, match="cannot be read"):
        read_keys("", str(tmp_path / "none"))
    with pytest.raises(KeysError, match="no keys"):
        read_keys(" ", "")
    assert main(["new", "two words"]) == 2
    assert capsys.readouterr().out == ""


def keys(*secrets: str) -> Keys:
    return {hash_key(secret): f"key {secret}" for secret in secrets}


def test_every_process_with_the_same_keys_accepts_a_token() -> None:
    token = Tokens(keys("a", "b")).issue("key a")
    assert all(c.isalnum() or c in "-_." for c in token)  # it may stand in a subprotocol
    assert Tokens(keys("b", "a")).owner(token) == "key a"
    assert Tokens(keys("a")).owner(token) is None
    assert Tokens(keys()).owner(Tokens(keys()).issue("x")) is None  # a secret of its own each


def test_a_token_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(keys("a"))
    token = tokens.issue("key a")
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + TOKEN_LIFETIME_S + 2)
    assert tokens.owner(token) is None


def test_a_token_is_neither_guessed_nor_changed() -> None:
    tokens = Tokens(keys("a"))
    token = tokens.issue("key a")
    changed = "A" if token[0] != "A" else "B"
    for guess in ("", "x", "é", "0" * 43, "A.B.C", changed + token[1:]):
        assert tokens.owner(guess) is None
