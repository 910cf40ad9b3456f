"""Tests of the short-lived tokens, and of the secret that signs them."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.access.keys import KeysError
from service.access.tokens import TOKEN_LIFETIME_S, Tokens, read_secret


def test_token_is_valid_for_the_same_secret_only() -> None:
    token = Tokens("a").issue("key a")
    assert all(c.isalnum() or c in "-_." for c in token)  # valid in a subprotocol's name
    assert Tokens("a").owner(token) == "key a"
    assert Tokens("b").owner(token) is None


def test_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens("a")
    token = tokens.issue("key a")
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + TOKEN_LIFETIME_S + 2)
    assert tokens.owner(token) is None


def test_guessed_and_altered_tokens_are_rejected() -> None:
    tokens = Tokens("a")
    token = tokens.issue("key a")
    changed = "A" if token[0] != "A" else "B"
    for guess in ("", "x", "é", "0" * 43, "A.B.C", changed + token[1:]):
        assert tokens.owner(guess) is None


def test_processes_share_one_private_secret_file(tmp_path: Path) -> None:
    keys_file = str(tmp_path / "keys")
    with ThreadPoolExecutor(8) as threads:
        secrets = set(threads.map(lambda _: read_secret("", keys_file), range(8)))
    assert len(secrets) == 1
    (path,) = tmp_path.iterdir()
    assert path.name == "keys.secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secrets.pop()) == 64


def test_configured_secret_is_used() -> None:
    assert read_secret(32 * "x", "/nowhere/keys") == 32 * "x"
    with pytest.raises(KeysError, match="32 characters"):
        read_secret("short", "")


def test_secret_is_random_without_a_writable_folder() -> None:
    for keys_file in ("", "/nowhere/keys"):
        assert read_secret("", keys_file) != read_secret("", keys_file)


def test_invalid_secret_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "keys.secret").write_text("")
    with pytest.raises(KeysError, match="32 characters"):
        read_secret("", str(tmp_path / "keys"))
