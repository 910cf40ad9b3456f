"""The probabilities that a client may ask for, from the session's frames to the socket."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from service.live.heat import LOWEST_PITCH, HeatLog
from service.protocol.server_messages import Frames
from tests.fakes import FAKE_PITCHES
from tests.service.apps import DURATION_S, START, chunks, hear, melody, of_type, pcm16, serving


def values_of(message: Frames) -> NDArray[np.uint8]:
    data = base64.b64decode(message.probabilities_base64, validate=True)
    return np.frombuffer(data, np.uint8).reshape(message.count, message.pitches)


def block(first: int, count: int) -> NDArray[np.float32]:
    """Frame f sounds at pitch 21 + f, with a probability of f / 100."""
    probabilities = np.zeros((3, count, 128), np.float32)
    for i in range(count):
        probabilities[0, i, LOWEST_PITCH + first + i] = (first + i) / 100
    return probabilities


def test_frames_that_the_client_has_are_left_out() -> None:
    log = HeatLog(first_frame=6)
    log.add(0, block(0, 4))
    assert log.take() is None
    log.add(4, block(4, 4))
    message = log.take()
    assert message is not None
    assert (message.frame, message.count) == (6, 2)
    assert values_of(message)[0, 6] == round(0.06 * 255)


def test_a_session_tells_them_where_it_was_asked_to() -> None:
    with serving() as (client, _):
        told = {}
        for frames in (False, True):
            with client.websocket_connect("/ws/transcribe") as socket:
                socket.send_json({**START, "frames": frames})
                for chunk in chunks(pcm16(melody())):
                    socket.send_bytes(chunk)
                socket.send_json({"type": "stop"})
                told[frames], _ = hear(socket)
    assert not of_type(told[False], "frames")
    notes = ("note_on", "note_off")
    assert [dict(m, seq=0) for m in of_type(told[True], *notes)] == [
        dict(m, seq=0) for m in of_type(told[False], *notes)
    ]
    messages = [Frames.model_validate(m) for m in of_type(told[True], "frames")]
    heat = np.concatenate([values_of(m) for m in messages])
    assert [m.frame for m in messages] == np.cumsum([0, *(m.count for m in messages[:-1])]).tolist()
    assert abs(len(heat) - DURATION_S * 11_025 / 128) < 2
    heard = {LOWEST_PITCH + int(p) for p in np.flatnonzero(heat.max(axis=0) > 128)}
    assert heard == set(FAKE_PITCHES) - {93}  # the melody has no A6
