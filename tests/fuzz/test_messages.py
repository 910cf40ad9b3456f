"""What a client may say, read: a message, a query, or a documented error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.client_messages import CLIENT_MESSAGES, Start, parse_message, parse_query
from service.protocol.faults import ErrorCode, ProtocolError
from tests.fuzz.conftest import inputs

# What reading may complain of; all other codes belong to a session under way.
COMPLAINTS = {
    ErrorCode.BAD_MESSAGE,
    ErrorCode.BAD_START,
    ErrorCode.UNSUPPORTED_ENCODING,
    ErrorCode.BAD_SAMPLE_RATE,
    ErrorCode.BAD_CHANNELS,
    ErrorCode.BAD_MODE,
    ErrorCode.BAD_LOOKAHEAD,
    ErrorCode.BAD_BLOCK_FRAMES,
    ErrorCode.BAD_RESUME,
}
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, -1, 2**31, 2**53, 2**64, 10**400, 1e308])
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
NOTE = st.fixed_dictionaries(
    {},
    optional={
        "note_id": NUMBERS,
        "pitch": st.integers(-1, 128) | JSON,
        "velocity": st.integers(0, 128) | JSON,
        "confidence": st.floats(0, 1) | JSON,
        "frame": st.integers(0, 1000) | JSON,
        "time_s": st.floats(0, 100) | JSON,
    },
)
RESUME = st.fixed_dictionaries(
    {},
    optional={
        "session_id": st.text("0123456789abcdef", max_size=33) | JSON,
        "from_sample": NUMBERS,
        "frames": NUMBERS,
        "notes": NUMBERS,
        "sounding": st.lists(NOTE, max_size=3) | JSON,
        "known_events": NUMBERS,
        "more": JSON,
    },
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "encoding": st.sampled_from(["pcm_s16le", "pcm_f32le", "mp3"]) | JSON,
    "sample_rate": st.integers(7_999, 192_001) | JSON,
    "channels": st.integers(0, 3) | JSON,
    "mode": st.sampled_from(["block", "centre", "sideways"]) | JSON,
    "lookahead_ms": st.floats(0, 500) | JSON,
    "block_frames": st.integers(0, 33) | JSON,
    "model": st.text(max_size=130) | JSON,
    "frames": st.booleans() | JSON,
    "resume": RESUME | JSON,
    "id": st.text(max_size=130) | JSON,
    "more": JSON,
}
TYPES = st.sampled_from(["start", "stop", "flush", "keepalive", "ready"]) | JSON
MESSAGES = st.fixed_dictionaries({}, optional={"type": TYPES, **FIELDS}) | JSON
TEXTS = st.one_of(
    MESSAGES.map(json.dumps),
    st.tuples(MESSAGES.map(json.dumps), st.integers(0, 80)).map(lambda cut: cut[0][: cut[1]]),
    st.text(),
    st.integers(1, 20_000).map(lambda depth: '{"type":' * depth),
    st.integers(1, 20_000).map(lambda depth: "[" * depth + "]" * depth),
)


def check(error: ProtocolError) -> None:
    assert error.code in COMPLAINTS
    assert error.code.close_code == 4400
    assert 0 < len(error.message) <= 300


@pytest.mark.timeout(3600)
@inputs(few=100, share=0.57)
@given(TEXTS)
def test_a_text_is_a_message_or_a_complaint(text: str) -> None:
    try:
        message = parse_message(text)
    except ProtocolError as error:
        check(error)
        return
    assert isinstance(message, CLIENT_MESSAGES)
    if isinstance(message, Start):
        message.audio()


NAMES = st.sampled_from([*FIELDS, "type"]) | st.text(max_size=10)
VALUES = st.one_of(
    st.text(max_size=20),
    NUMBERS.map(str),
    st.sampled_from(["pcm_s16le", "pcm_f32le", "block", "true", "1", "44100", "nan", "1_0", "\0"]),
)


@pytest.mark.timeout(3600)
@inputs(few=60, share=0.25)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.booleans())
def test_a_query_is_a_start_or_a_complaint(query: list[tuple[str, str]], usual: bool) -> None:
    if usual:
        query = [("encoding", "pcm_s16le"), ("sample_rate", "44100"), *query]
    try:
        start = parse_query(query)
    except ProtocolError as error:
        check(error)
        return
    assert (start is None) == (not query)
    if start is not None:
        start.audio()
