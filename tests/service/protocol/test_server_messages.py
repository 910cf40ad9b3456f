"""Tests of the parser of server messages."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from service.protocol.client_messages import Start, to_json
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOn, Progress, Unknown, parse_server_message

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
