"""Tokens: valid for a short time, at every server with the same keys."""

import time

import pytest

from service.access.clients import Client
from service.access.keys import Keys, hash_key
from service.access.tokens import LIFETIME_S, Tokens

ALICE = Client("key alice", max_sessions=3)


def keys(*secrets: str) -> Keys:
    return {hash_key(secret): Client(f"key {secret}") for secret in secrets}


def test_every_process_with_the_same_keys_accepts_a_token() -> None:
    token = Tokens(keys("a", "b")).issue(ALICE)
    assert all(c.isalnum() or c in "-_." for c in token)  # it may stand in a subprotocol
    assert Tokens(keys("b", "a")).owner(token) == ALICE
    assert Tokens(keys("a")).owner(token) is None
    assert Tokens(keys()).owner(Tokens(keys()).issue(ALICE)) is None  # a secret of its own each


def test_a_token_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(keys("a"))
    token = tokens.issue(ALICE)
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + LIFETIME_S + 2)
    assert tokens.owner(token) is None


@pytest.mark.parametrize("guess", ["", "x", "é", "0" * 43, "A.B.C"])
def test_nobody_guesses(guess: str) -> None:
    assert Tokens(keys("a")).owner(guess) is None


def test_what_a_token_says_cannot_be_changed() -> None:
    tokens = Tokens(keys("a"))
    token = tokens.issue(ALICE)
    for place in range(0, len(token) - 4, 7):
        changed = "A" if token[place] != "A" else "B"
        assert tokens.owner(token[:place] + changed + token[place + 1 :]) is None
