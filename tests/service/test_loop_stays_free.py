"""Test that the event loop never waits for the model."""

from concurrent.futures import ThreadPoolExecutor

from tests.fakes import GatedTranscriber
from tests.service.apps import ADDRESS, START, of_type, send, serving, sound_file, stop


def test_requests_are_served_while_the_model_runs() -> None:
    model = GatedTranscriber()
    model.gate.set()
    with serving(model) as (client, _), ThreadPoolExecutor(1) as pool:
        model.close_gate()
        upload = pool.submit(client.post, "/transcribe", files={"file": sound_file()})
        try:
            assert model.entered.wait(60)
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 200
            with client.websocket_connect(ADDRESS) as socket:
                socket.send_json(START)  # the handshake needs no model
                send(socket)
                assert not upload.done()
                model.gate.set()
                messages, _code = stop(socket)
            assert messages[0]["type"] == "ready"
            assert of_type(messages, "note_on")
            assert upload.result(60).status_code == 200
        finally:
            model.gate.set()
