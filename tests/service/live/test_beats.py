"""Tests of the beats of a stream, and of the MIDI file that contains them."""

import base64
import io
import json
from collections.abc import Iterator

import numpy as np
import pretty_midi
import pytest
from starlette.testclient import TestClient

from model.config import HEADS
from tests.fakes import FakeTranscriber, play
from tests.service.apps import RATE_HZ, of_type, pcm16, perform, post, serving, sound_file

BEAT_S = 0.6
NOTES = [(p, BEAT_S * (n + 1), BEAT_S * (n + 1.8)) for n, p in enumerate([57, 69, 81, 69] * 6)]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with serving(FakeTranscriber(HEADS)) as (client, _):
        yield client


def test_beats_are_sent_on_request(client: TestClient) -> None:
    audio = pcm16(play(NOTES, BEAT_S * 26, RATE_HZ))
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
