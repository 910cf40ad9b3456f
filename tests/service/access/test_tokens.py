"""Tokens: valid once, for a short time, at every server with the secret."""

import pytest

from service.access import tokens
from service.access.clients import Client
from service.access.tokens import TokenBook
from tests.fakes import Clock

ALICE = Client("key alice", max_sessions=3)
SECRET = b"s" * 32


def books(count: int) -> tuple[list[TokenBook], Clock]:
    clock = Clock()
    return [TokenBook(30, SECRET, clock) for _ in range(count)], clock


def test_a_token_of_one_replica_is_good_at_another_once() -> None:
    (one, other), _ = books(2)
    token = one.issue(ALICE)
    assert token.replace("-", "").replace("_", "").isalnum()  # it may stand in a subprotocol
    assert other.owner(token) == ALICE
    other.spend(token)
    assert other.owner(token) is None
    assert other.owner(one.issue(ALICE)) == ALICE


def test_a_token_ends_with_its_time_and_spent_ones_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "MAX_SPENT", 2)
    (book,), clock = books(1)
    late = book.issue(ALICE)
    for _ in range(5):
        book.spend(book.issue(ALICE))
    assert book.owner(book.issue(ALICE)) is None  # so many are remembered that none is let in
    clock.now_s += 30
    assert book.owner(late) is None
    assert book.owner(book.issue(ALICE)) == ALICE


@pytest.mark.parametrize("guess", ["", "x", "\udcff", "é", "0" * 43, "A" * 400])
def test_nobody_guesses(guess: str) -> None:
    (book,), _ = books(1)
    book.issue(ALICE)
    assert book.owner(guess) is None
    book.spend(guess)


def test_what_a_token_says_cannot_be_changed() -> None:
    (book,), _ = books(1)
    foreign = TokenBook(30, clock=Clock()).issue(ALICE)
    assert book.owner(foreign) is None
    token = book.issue(ALICE)
    for place in range(0, len(token) - 4, 7):
        changed = "A" if token[place] != "A" else "B"
        assert book.owner(token[:place] + changed + token[place + 1 :]) is None
