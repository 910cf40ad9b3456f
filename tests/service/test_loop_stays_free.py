"""The event loop never waits for the model."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import soundfile

from tests.fakes import GatedTranscriber
from tests.service.apps import RATE_HZ, START, chunks, melody, of_type, pcm16, serving, stop


def test_others_are_answered_while_the_model_runs() -> None:
    model = GatedTranscriber()
    model.gate.set()
    file = io.BytesIO()
    soundfile.write(file, melody(), RATE_HZ, format="WAV")
    with serving(model) as (client, _), ThreadPoolExecutor(1) as pool:
        model.gate.clear()
        model.entered.clear()
        upload = pool.submit(
            client.post, "/transcribe", files={"file": ("a.wav", file.getvalue(), "audio/wav")}
        )
        try:
            assert model.entered.wait(60)
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 200
            with client.websocket_connect("/ws/transcribe") as socket:
                socket.send_json(START)
                assert socket.receive_json()["type"] == "ready"  # the handshake needs no model
                assert not upload.done()
                for chunk in chunks(pcm16(melody())):
                    socket.send_bytes(chunk)
                model.gate.set()
                messages, _code = stop(socket)
            assert of_type(messages, "note_on")
            assert upload.result(60).status_code == 200
        finally:
            model.gate.set()
