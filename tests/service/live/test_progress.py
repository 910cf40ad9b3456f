"""The probabilities that a client may ask for, from the session's frames to the socket."""

import base64

import numpy as np
from starlette.testclient import TestClient

from service.protocol.server_messages import Frames
from service.workers.session import LOWEST_PITCH
from tests.fakes import FAKE_PITCHES
from tests.service.apps import DURATION_S, of_type, perform


def test_a_session_sends_them_if_asked_to(client: TestClient) -> None:
    _, untold = perform(client)
    _, reported = perform(client, frames=True)
    assert not of_type(untold, "frames")
    notes = ("note_on", "note_off")
    assert [dict(m, seq=0) for m in of_type(reported, *notes)] == [
        dict(m, seq=0) for m in of_type(untold, *notes)
    ]
    messages = [Frames.model_validate(m) for m in of_type(reported, "frames")]
    assert [m.frame for m in messages] == np.cumsum([0, *(m.count for m in messages[:-1])]).tolist()
    data = b"".join(base64.b64decode(m.probabilities_base64, validate=True) for m in messages)
    heat = np.frombuffer(data, np.uint8).reshape(-1, messages[0].pitches)
    assert abs(len(heat) - DURATION_S * 11_025 / 128) < 2
    heard = {LOWEST_PITCH + int(p) for p in np.flatnonzero(heat.max(axis=0) > 128)}
    assert heard == set(FAKE_PITCHES) - {93}  # the melody has no A6
