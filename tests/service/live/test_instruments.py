"""Tests of instruments, the pedal and beats in live sessions and uploads."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pretty_midi
import pytest
from starlette.testclient import TestClient

from model.config import HEADS
from model.instruments import PROGRAMS
from rse_transcribe import Stream
from tests.fakes import FakeTranscriber, play
from tests.service.apps import (
    RATE_HZ,
    of_type,
    pcm16,
    perform,
    post,
    rejected_start,
    serving,
    sound_file,
)

# The fake model classifies the instrument of a tone by its loudness. The tones overlap, because the
# service assigns only one instrument to notes that follow each other.
PARTS = [
    ("violin", 81, 0.2, 1.3, 0.17),
    ("piano", 57, 0.5, 1.7, 0.2),
    ("viola", 69, 0.9, 1.9, 0.14),
]
DURATION_S = 2.2
SAMPLES = np.sum(
    [play([(p, on, off)], DURATION_S, RATE_HZ, level) for _, p, on, off, level in PARTS], axis=0
)
NAMES = {pitch: name for name, pitch, *_ in PARTS}
BEAT_S = 0.6
TUNE = [(p, BEAT_S * (n + 1), BEAT_S * (n + 1.8)) for n, p in enumerate([57, 69, 81, 69] * 6)]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with serving(FakeTranscriber(HEADS)) as client:
        yield client


@pytest.fixture(scope="module")
def recording() -> bytes:
    return sound_file(np.frombuffer(pcm16(SAMPLES), "<i2"))


def live(client: TestClient, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return perform(client, pcm16(SAMPLES), **fields)


def instruments_of(midi: bytes) -> dict[str, list[int]]:
    """Return the pitches of each track, by its name."""
    file = pretty_midi.PrettyMIDI(io.BytesIO(midi))
    for part in file.instruments:
        assert part.program == PROGRAMS[part.name]
        assert not part.is_drum
    return {part.name: [note.pitch for note in part.notes] for part in file.instruments}


def test_live_session_reports_instruments_and_pedal(client: TestClient) -> None:
    ready, messages = live(client, updates=True)
    assert ready["instruments"] == PROGRAMS
    notes = of_type(messages, "note_on")
    assert {note["pitch"]: note["instrument"] for note in notes} == NAMES
    assert all(0 < note["instrument_probability"] <= 1 for note in notes)
    pedal = of_type(messages, "pedal")
    assert [event["down"] for event in pedal] == [True, False]
    assert pedal[0]["time_s"] == pytest.approx(0.5, abs=0.05)
    midi = base64.b64decode(messages[-1]["midi_base64"])
    assert instruments_of(midi) == {"piano": [57], "violin": [81], "viola": [69]}
    piano = pretty_midi.PrettyMIDI(io.BytesIO(midi)).instruments[0]
    assert [(c.number, c.value) for c in piano.control_changes] == [(64, 127), (64, 0)]
    _, messages_without = live(client)
    assert of_type(messages_without, "note_update", "pedal") == []


def test_only_requested_instruments_are_reported(client: TestClient) -> None:
    ready, messages = live(client, instruments=["cello", "viola", "guitar"])
    assert ready["instruments"] == {"plucked": 24, "viola": 41, "cello": 42}
    named = [note["instrument"] for note in of_type(messages, "note_on")]
    assert set(named) <= {"cello", "viola"}
    assert named[-1] == "viola"


def test_upload_has_the_instruments_of_the_stream(client: TestClient, recording: bytes) -> None:
    options = {"updates": True, "lookahead_ms": 100, "block_frames": 4}
    text = post(client, recording, "ndjson", **options).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0]["instruments"] == PROGRAMS
    kinds = ("note_on", "note_update", "note_off", "pedal")
    _, messages = live(client, updates=True)
    for message in messages:
        del message["seq"]
    assert of_type(lines, *kinds) == of_type(messages, *kinds)
    text = post(client, recording, "ndjson").text
    assert of_type([*map(json.loads, text.splitlines())], "note_update", "pedal") == []
    response = post(client, recording, "json").json()
    assert {note["pitch"]: note["instrument"] for note in response["notes"]} == NAMES
    (press,) = response["pedal"]
    assert press["offset_s"] == pytest.approx(1.7, abs=0.05)
    midi = post(client, recording, "midi", instruments="viola, electric piano").content
    assert set(instruments_of(midi)) == {"viola"}


def test_notes_of_a_soloist_get_one_instrument_at_the_end(client: TestClient) -> None:
    # The first tone is as loud as a piano's, the others are as loud as a violin's.
    tones = [(57, 0.2)] + 8 * [(81, 0.17), (69, 0.17)]
    times = [(0.3 + 0.5 * n, 0.7 + 0.5 * n) for n in range(len(tones))]
    duration_s = times[-1][1] + 0.5
    parts = zip(tones, times, strict=True)
    samples = sum(play([(p, *time)], duration_s, RATE_HZ, level) for (p, level), time in parts)
    audio = pcm16(np.asarray(samples))
    _, messages = perform(client, audio, updates=True)
    first_note = of_type(messages, "note_on")[0]
    assert (first_note["pitch"], first_note["instrument"]) == (57, "piano")
    names = {note["note_id"]: note["instrument"] for note in of_type(messages, "note_on")}
    names |= {note["note_id"]: note["instrument"] for note in of_type(messages, "note_update")}
    assert set(names.values()) == {"violin"}
    midi = base64.b64decode(messages[-1]["midi_base64"])
    assert instruments_of(midi) == {"violin": [pitch for pitch, _ in tones]}
    lines = post(client, sound_file(np.frombuffer(audio, "<i2")), "ndjson", updates="true").text
    updates = of_type([json.loads(line) for line in lines.splitlines()], "note_update")
    assert {update["instrument"] for update in updates} == {"violin"}
    with Stream(RATE_HZ, model=FakeTranscriber(HEADS)) as stream:
        stream.push(np.asarray(samples))
        stream.finish()
        assert {note.instrument for note in stream.notes} == {"violin"}


def test_model_without_instruments_reports_none(recording: bytes) -> None:
    with serving() as client:
        ready, messages = live(client, updates=True)
        assert "instruments" not in ready
        assert "belief" not in ready["checkpoint"]
        assert len(of_type(messages, "note_on")) == len(PARTS)
        assert not any("instrument" in message for message in messages)
        midi = pretty_midi.PrettyMIDI(io.BytesIO(base64.b64decode(messages[-1]["midi_base64"])))
        assert [(part.program, part.name) for part in midi.instruments] == [(0, "")]
        assert rejected_start(client, instruments=["piano"])[0]["code"] == "bad_start"
        response = post(client, recording, "midi", instruments="piano")
        assert response.status_code == 422


def test_beats_are_sent_on_request(client: TestClient) -> None:
    audio = pcm16(play(TUNE, BEAT_S * 26, RATE_HZ))
    _, messages = perform(client, audio, beats=True)
    beats = of_type(messages, "beat")
    assert len(beats) >= 20
    assert np.diff([beat["time_s"] for beat in beats]) == pytest.approx(BEAT_S, abs=0.05)
    assert {beat["type"] for beat in messages[: messages.index(beats[0])]} >= {"note_on"}
    midi = pretty_midi.PrettyMIDI(io.BytesIO(base64.b64decode(messages[-1]["midi_base64"])))
    assert np.median(np.diff(midi.get_beats())) == pytest.approx(BEAT_S, abs=0.01)
    assert midi.time_signature_changes
    assert midi.key_signature_changes
    onsets_s = sorted(note.start for part in midi.instruments for note in part.notes)
    assert onsets_s == pytest.approx([m["time_s"] for m in of_type(messages, "note_on")], abs=2e-3)
    _, messages_without = perform(client, audio)
    assert not of_type(messages_without, "beat")
    # The beats of a recording are reported at its end.
    wav = sound_file(np.frombuffer(audio, "<i2"))
    lines = post(client, wav, "ndjson", updates="true").text.splitlines()
    beats_of_upload = of_type([json.loads(line) for line in lines], "beat")
    assert np.diff([beat["time_s"] for beat in beats_of_upload]) == pytest.approx(BEAT_S, abs=0.05)
