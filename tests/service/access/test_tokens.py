"""Tokens: good once, for a short time, and bounded in number."""

from __future__ import annotations

from service.access.clients import Client
from service.access.tokens import TokenBook

ALICE, BOB = Client("key alice"), Client("key bob")


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def book(max_tokens: int = 10) -> tuple[TokenBook, Clock]:
    clock = Clock()
    return TokenBook(30, max_tokens, clock), clock


def test_a_token_is_its_clients_and_good_once() -> None:
    tokens, _ = book()
    for client in (ALICE, BOB):
        token = tokens.issue(client)
        assert token is not None
        assert tokens.owner(token + "x") is None
        assert tokens.owner(token) == client
        tokens.spend(token)
        assert tokens.owner(token) is None
        tokens.spend(token)


def test_a_token_ends_with_its_time() -> None:
    tokens, clock = book()
    token = tokens.issue(ALICE)
    assert token is not None
    clock.now_s += 30
    assert tokens.owner(token) is None


def test_no_more_tokens_are_out_than_may_be() -> None:
    tokens, clock = book(max_tokens=2)
    first = tokens.issue(ALICE)
    assert first is not None
    assert tokens.issue(ALICE) is not None
    assert tokens.issue(ALICE) is None
    tokens.spend(first)  # makes room
    assert tokens.issue(ALICE) is not None
    assert tokens.issue(ALICE) is None
    clock.now_s += 31  # as do those that are too old
    assert tokens.issue(ALICE) is not None


def test_nobody_guesses() -> None:
    tokens, _ = book()
    tokens.issue(ALICE)
    for guess in ("", "x", "\udcff", "0" * 43):
        assert tokens.owner(guess) is None
