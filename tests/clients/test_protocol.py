"""Messages are read strictly where they are known and ignored where they are not."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.protocol import (
    Done,
    NoteOn,
    ProtocolError,
    StartOptions,
    UnknownMessage,
    parse_message,
    websocket_url,
)

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


def test_note_on_is_read_and_a_whole_number_is_a_float() -> None:
    seq, message = parse_message(json.dumps(NOTE_ON))
    assert seq == 3
    assert message == NoteOn(note_id=0, pitch=69, velocity=84, confidence=1.0, frame=43, time_s=0.5)


@pytest.mark.parametrize("name", [name for name in NOTE_ON if name != "type"])
def test_a_missing_field_is_named(name: str) -> None:
    rest = {key: value for key, value in NOTE_ON.items() if key != name}
    with pytest.raises(ProtocolError, match=name):
        parse_message(json.dumps(rest))


@pytest.mark.parametrize(
    ("name", "value"),
    [("pitch", "69"), ("pitch", True), ("pitch", 128), ("time_s", None), ("seq", 1.5)],
)
def test_a_wrong_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(ProtocolError, match=name):
        parse_message(json.dumps({**NOTE_ON, name: value}))


@pytest.mark.parametrize("text", [b"\0", "no json", "[]", "{}", '{"seq": NaN, "type": "done"}'])
def test_what_is_no_message_is_refused(text: str | bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_message(text)


def test_newer_fields_and_messages_are_ignored() -> None:
    assert (
        parse_message(json.dumps({**NOTE_ON, "timbre": "oboe"}))[1]
        == parse_message(json.dumps(NOTE_ON))[1]
    )
    assert parse_message('{"seq": 0, "type": "tempo", "bpm": 120}')[1] == UnknownMessage(
        type="tempo"
    )


def test_done_holds_a_midi_file_or_is_refused() -> None:
    fields = {"seq": 0, "type": "done", "reason": "stop", "totals": {}}
    midi = base64.b64encode(b"MThd...").decode()
    done = parse_message(json.dumps({**fields, "midi_base64": midi}))[1]
    assert isinstance(done, Done)
    assert done.midi == b"MThd..."
    for bad in ("?", base64.b64encode(b"RIFF").decode()):
        with pytest.raises(ProtocolError, match="midi_base64"):
            parse_message(json.dumps({**fields, "midi_base64": bad}))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nothing_but_a_protocol_error_comes_of_junk(value: Any) -> None:
    for candidate in (value, {"seq": 0, "type": "done", "totals": value, "midi_base64": value}):
        try:
            parse_message(json.dumps(candidate))
        except ProtocolError:
            pass


def test_start_leaves_out_what_is_not_chosen() -> None:
    options = StartOptions(encoding="pcm_s16le", sample_rate=48_000, lookahead_ms=50)
    assert json.loads(options.to_json()) == {
        "type": "start",
        "encoding": "pcm_s16le",
        "sample_rate": 48_000,
        "channels": 1,
        "lookahead_ms": 50,
    }


@pytest.mark.parametrize(
    "wrong",
    [{"encoding": "mp3"}, {"sample_rate": 7_999}, {"sample_rate": 192_001}, {"channels": 3}],
)
def test_start_refuses_what_the_service_would(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"encoding": "pcm_f32le", "sample_rate": 44_100}
    StartOptions(**good)
    with pytest.raises(ValueError, match=r"service takes|encoding"):
        StartOptions(**{**good, **wrong})


@pytest.mark.parametrize(
    ("given_url", "wanted"),
    [
        ("http://host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/", "wss://host/ws/transcribe"),
        ("host:8000", "ws://host:8000/ws/transcribe"),
        ("wss://host/other?key=1", "wss://host/other?key=1"),
    ],
)
def test_any_address_of_the_service_leads_to_its_websocket(given_url: str, wanted: str) -> None:
    assert websocket_url(given_url) == wanted


@pytest.mark.parametrize("url", ["ftp://host", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        websocket_url(url)
