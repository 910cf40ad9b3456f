"""Fuzz tests of the message parser: it parses any text or raises a documented error."""

import json
from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.checkpoint import Checkpoint, NoteEvent
from service.protocol.client_messages import (
    ClientMessage,
    Start,
    parse_message,
    parse_query,
)
from service.protocol.errors import ProtocolError
from tests.fuzz.conftest import inputs

NOTE_FIELDS = (field.name for field in fields(NoteEvent))
FIELDS = st.sampled_from([*Start.model_fields, *Checkpoint.model_fields, *NOTE_FIELDS])
NAMES = FIELDS | st.text(max_size=8)
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, -1, 2**31, 2**53, 2**64, 10**400, 1e308])
)
WORDS = st.sampled_from(["start", "stop", "flush", "pcm_s16le", "block", "44100", "nan", "1_0"])
VALUES = st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=20)
JSON = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
VALID_START = {"type": "start", "encoding": "pcm_s16le", "sample_rate": 44_100}
MESSAGES = st.dictionaries(NAMES, JSON, max_size=4).map(VALID_START.__or__) | JSON
TEXTS = st.one_of(
    MESSAGES.map(json.dumps),
    st.tuples(MESSAGES.map(json.dumps), st.integers(0, 80)).map(lambda pair: pair[0][: pair[1]]),
    st.text(),
    st.integers(1, 20_000).map(lambda depth: '{"type":' * depth),
    st.integers(1, 20_000).map(lambda depth: "[" * depth + "]" * depth),
)
QUERY = st.lists(st.tuples(NAMES, VALUES.map(str)), max_size=6)
VALID_QUERY = [("encoding", "pcm_s16le"), ("sample_rate", "44100")]


def check(parse: Callable[[], ClientMessage | None]) -> None:
    try:
        message = parse()
        if isinstance(message, Start):
            message.audio()
    except ProtocolError as error:
        check_error(error)


def check_error(error: ProtocolError) -> None:
    assert error.code.close_code == 4400
    assert 0 < len(error.message) <= 300


@pytest.mark.timeout(3600)
@inputs(min_count=150, share=0.28)
@given(TEXTS)
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    check(lambda: parse_message(text))


@pytest.mark.timeout(3600)
@inputs(min_count=100, share=0.14)
@given(QUERY | QUERY.map(VALID_QUERY.__add__))
def test_any_query_is_parsed_or_rejected(query: list[tuple[str, str]]) -> None:
    check(lambda: parse_query(query))
