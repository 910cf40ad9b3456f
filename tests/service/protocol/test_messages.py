"""Tests of the parsers of client messages, queries and server messages."""

import json
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest
from pydantic import ValidationError

from model.config import HOP, SAMPLE_RATE
from service.protocol.client_messages import (
    RequestOptions,
    Start,
    parse_message,
    parse_query,
    to_json,
)
from service.protocol.errors import CloseCode, ErrorCode, ProtocolError
from service.protocol.options import FILE_OPTIONS, Encoding, Mode, StreamOptions
from service.protocol.server_messages import NoteOn, Progress, Unknown, parse_server_message

START = {"type": "start", "encoding": "pcm_s16le", "sample_rate": 44100}


def start_with(**fields: object) -> str:
    return json.dumps({**START, **fields})


def test_start_overrides_the_defaults() -> None:
    start = parse_message(start_with(mode="block", lookahead_ms=50, block_frames=8, channels=2))
    assert isinstance(start, Start)
    assert parse_query([("encoding", "pcm_s16le"), ("sample_rate", "44100")]) == Start(
        encoding=Encoding.PCM_S16LE, sample_rate=44100
    )
    assert start.options(StreamOptions(mode=Mode.ANYTIME)) == StreamOptions(
        mode=Mode.BLOCK, lookahead_ms=50, block_frames=8
    )
    assert start.audio().channels == 2
    # Recordings have larger blocks than the anytime mode permits.
    anytime = RequestOptions(mode=Mode.ANYTIME, bends=True).options(FILE_OPTIONS)
    assert anytime == StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200, bends=True)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[]", ErrorCode.BAD_MESSAGE, "the message must be an object"),
        ("{}", ErrorCode.BAD_MESSAGE, "the message has no type"),
        ('{"type": "sing"}', ErrorCode.BAD_MESSAGE, "type must be one of 'start', .*, not 'sing'"),
        ('{"type": "stop", "now": true}', ErrorCode.BAD_MESSAGE, "unknown field: now"),
        ('{"type": "stop"' + "[" * 5000, ErrorCode.BAD_MESSAGE, ".{1,300}"),
        (
            '{"type": "stop", "%s": 1}' % (1000 * "x"),
            ErrorCode.BAD_MESSAGE,
            "unknown field: x{285}",
        ),
        ('{"type": "flush"}', ErrorCode.BAD_MESSAGE, "id is missing"),
        ('{"type": "flush", "id": "%s"}' % (129 * "x"), ErrorCode.BAD_MESSAGE, "id must .* 128.*"),
        ('{"type": "start"}', ErrorCode.BAD_START, "encoding is missing.*"),
        (start_with(lookahead=50), ErrorCode.BAD_START, "unknown field: lookahead"),
        (start_with(encoding="opus"), ErrorCode.BAD_START, "encoding must be .*"),
        (start_with(sample_rate=384_001), ErrorCode.BAD_START, "sample_rate must be .*"),
        (start_with(channels=3), ErrorCode.BAD_START, "channels must be .* equal to 2"),
        (start_with(mode="window"), ErrorCode.BAD_START, "mode must be 'block' or 'anytime'"),
        (start_with(lookahead_ms=float("nan")), ErrorCode.BAD_START, "lookahead_ms must .*"),
        (start_with(block_frames=33), ErrorCode.BAD_START, "block_frames must be .*"),
        (start_with(resume={}), ErrorCode.BAD_RESUME, "resume.session_id is missing"),
    ],
)
def test_invalid_messages_are_rejected_with_code_and_field(
    text: str, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_message(text)
    assert caught.value.code is code
    assert re.fullmatch(message, caught.value.message)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"instruments": ["kazoo"]}, ErrorCode.BAD_START, ".* must be among .*, not kazoo"),
        ({"instruments": 20_000 * ["kazoo"]}, ErrorCode.BAD_START, ".* must be among .*"),
        (dict.fromkeys(map(str, range(20_000))), ErrorCode.BAD_START, "the message has 20000 .*"),
        (
            {"type": "stop", **dict.fromkeys(map(str, range(200)))},
            ErrorCode.BAD_MESSAGE,
            "the message has 202 .*",
        ),
        (
            {"resume": {"session_id": "a", "sounding": 20_000 * [{}]}},
            ErrorCode.BAD_RESUME,
            "resume.* is missing",
        ),
    ],
    ids=["one", "elements", "fields", "fields of stop", "notes"],
)
def test_messages_with_many_errors_get_one_short_error(
    fields: dict[str, object], code: ErrorCode, message: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_message(start_with(**fields))
    assert caught.value.code is code
    assert re.fullmatch(message, caught.value.message)
    assert (code.close_code, code.retryable) == (CloseCode.BAD_REQUEST, False)


@pytest.mark.parametrize(
    "query",
    [
        "sample_rate=44100",
        "encoding=pcm_s16le&sample_rate=",
        "encoding=pcm_s16le&sample_rate=44100&gain=2",
    ],
)
def test_invalid_queries_are_rejected(query: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_query(parse_qsl(query, keep_blank_values=True))
    assert caught.value.code is ErrorCode.BAD_START


def test_incompatible_options_are_rejected() -> None:
    start = parse_message(start_with(mode="anytime", block_frames=9))
    assert isinstance(start, Start)
    with pytest.raises(
        ProtocolError, match="block_frames must be from 1 to 8 in anytime mode, not 9"
    ):
        start.options(StreamOptions())


HOP_MS = 1000 * HOP / SAMPLE_RATE


@pytest.mark.parametrize(
    ("lookahead_ms", "hops"),
    # The rounded look-ahead in `ready` selects the same number of hops.
    [(1, 4), (100, 8), (200, 17), (1e308, 32), *((round(n * HOP_MS, 3), n) for n in range(4, 33))],
)
def test_lookahead_is_converted_to_hops(lookahead_ms: float, hops: int) -> None:
    assert StreamOptions(lookahead_ms=lookahead_ms).lookahead_hops(SAMPLE_RATE) == hops


NOTE_ON = {
    "seq": 3,
    "type": "note_on",
    "note_id": 0,
    "pitch": 69,
    "velocity": 84,
    "confidence": 1,
    "frame": 43,
    "time_s": 0.5,
}


def test_note_on_is_parsed_with_integers_as_floats() -> None:
    assert parse_server_message(json.dumps(NOTE_ON)) == NoteOn(
        seq=3, note_id=0, pitch=69, velocity=84, confidence=1.0, frame=43, time_s=0.5
    )


@pytest.mark.parametrize(
    "fields", [{"pitch": "69"}, {"pitch": True}, {"pitch": 128}, {"time_s": None}, {"seq": 1.5}]
)
def test_error_names_the_invalid_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        parse_server_message(json.dumps({**NOTE_ON, **fields}))


def test_client_returns_unknown_fields_of_a_checkpoint() -> None:
    counts = {"received_samples": 0, "frames": 0, "time_s": 0.0, "behind_ms": 0.0}
    checkpoint = {"session_id": "a", "from_sample": 0, "frames": 0, "notes": 0, "sounding": []}
    newer = {**checkpoint, "belief": {"weights": {"kazoo": 1.0}}, "breath": {"x": [1]}}
    progress = parse_server_message(json.dumps({"type": "progress", **counts, "checkpoint": newer}))
    assert isinstance(progress, Progress)
    start = Start(encoding=Encoding.PCM_S16LE, sample_rate=44_100, resume=progress.checkpoint)
    assert json.loads(to_json(start))["resume"] == newer


def test_unknown_fields_and_messages_are_ignored() -> None:
    newer = json.dumps({**NOTE_ON, "timbre": "oboe"})
    assert parse_server_message(newer) == parse_server_message(json.dumps(NOTE_ON))
    tempo = parse_server_message('{"seq": 7, "type": "tempo", "bpm": 120}')
    assert tempo == Unknown(seq=7, type="tempo")
