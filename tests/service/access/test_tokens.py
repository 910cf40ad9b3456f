"""Tokens of pages: valid for a short time, at every server with the same secret."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.access.keys import KeysError
from service.access.tokens import TOKEN_LIFETIME_S, Tokens, read_secret


def test_every_process_with_the_same_secret_accepts_a_token() -> None:
    token = Tokens("a").issue("key a")
    assert all(c.isalnum() or c in "-_." for c in token)  # it may stand in a subprotocol
    assert Tokens("a").owner(token) == "key a"
    assert Tokens("b").owner(token) is None


def test_a_token_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens("a")
    token = tokens.issue("key a")
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + TOKEN_LIFETIME_S + 2)
    assert tokens.owner(token) is None


def test_a_token_is_neither_guessed_nor_changed() -> None:
    tokens = Tokens("a")
    token = tokens.issue("key a")
    changed = "A" if token[0] != "A" else "B"
    for guess in ("", "x", "é", "0" * 43, "A.B.C", changed + token[1:]):
        assert tokens.owner(guess) is None


def test_the_secret_is_a_private_file_that_all_processes_share(tmp_path: Path) -> None:
    keys_file = str(tmp_path / "keys")
    with ThreadPoolExecutor(8) as threads:
        secrets = set(threads.map(lambda _: read_secret("", keys_file), range(8)))
    assert len(secrets) == 1
    (made,) = tmp_path.iterdir()
    assert made.name == "keys.secret"
    assert made.stat().st_mode & 0o777 == 0o600
    assert len(secrets.pop()) == 64


def test_a_secret_that_is_set_is_used() -> None:
    assert read_secret(32 * "x", "/nowhere/keys") == 32 * "x"
    with pytest.raises(KeysError, match="32 characters"):
        read_secret("short", "")


def test_without_a_folder_that_can_be_written_the_secret_is_one_of_the_process() -> None:
    for keys_file in ("", "/nowhere/keys"):
        assert read_secret("", keys_file) != read_secret("", keys_file)


def test_an_invalid_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "keys.secret").write_text("")
    with pytest.raises(KeysError, match="32 characters"):
        read_secret("", str(tmp_path / "keys"))
