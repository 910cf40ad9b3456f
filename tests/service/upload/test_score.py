"""Tests of scores: `POST /score`, and uploads with `answer=musicxml`."""

import asyncio
import io
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
import soundfile
from anyio import to_process
from starlette.requests import Request
from starlette.testclient import TestClient

from service import helper_process
from service.access.keys import hash_key
from service.score import sheet
from service.state import MAX_SCORES_PER_CLIENT, ServiceState
from service.upload import endpoint, score
from tests.service.apps import post, serving, sound_file
from tests.service.score.music import tune
from tests.service.servers import TONES, server_starter

NOTES = [
    {"onset_s": on, "offset_s": off, "pitch": int(pitch), "velocity": int(velocity)}
    for on, off, pitch, velocity in tune(0.6 + np.arange(33) * 0.5, 4)
]


def test_score_has_note_times_and_keeps_beats(client: TestClient) -> None:
    body = client.post("/score?width=1500", json={"notes": NOTES, "title": "Tune"}).json()
    assert body.get("steady"), body
    assert body["signature"] in ([2, 4], [4, 4])
    assert body["key"] in ("C", "Am", "F", "G")
    assert body["svg"].startswith("<svg")
    assert body["svg"].count('class="measure') == len(body["bars_s"])
    # The response has the time of each note of the image.
    assert body["svg"].count('class="note"') == len(body["notes_s"]) == len(NOTES)
    onsets_s = sorted(onset_s for onset_s, _ in body["notes_s"].values())
    assert onsets_s == pytest.approx([note["onset_s"] for note in NOTES], abs=0.1)
    assert all(onset_s < offset_s for onset_s, offset_s in body["notes_s"].values())
    # The beats of a request are preserved: every second beat, bars that start before the music, and
    # the first three beats.
    for size, beats in ((3, body["beats"][::2]), (7, body["beats"]), (3, body["beats"][:3])):
        requested = [
            dict(b, time_s=b["time_s"] - 0.7, place=n % size, beats_per_bar=size)
            for n, b in enumerate(beats)
        ]
        result = client.post("/score", json={"notes": NOTES, "beats": requested}).json()
        assert result["signature"] == [size, 4]
        assert [b["time_s"] for b in result["beats"]] == [b["time_s"] for b in requested]
    # A performance in progress needs more beats.
    few = {"notes": NOTES, "beats": requested, "live": True}
    assert not client.post("/score", json=few).json()["steady"]
    many = {"notes": NOTES, "beats": body["beats"], "live": True}
    assert client.post("/score", json=many).json()["steady"]


BEAT = {"time_s": 1.0, "place": 0, "beats_per_bar": 4}
LATE = {"onset_s": 86_398, "offset_s": 86_399, "pitch": 60}


@pytest.mark.parametrize(
    ("form", "first_bytes", "title", "stem"),
    [
        ("musicxml", b"<?xml", "No. 1 in 3/4", "No.%201%20in%203.4"),
        ("musicxml", b"<?xml", 300 * "x", 100 * "x"),
        ("pdf", b"%PDF", "", "transcription"),
        ("musicxml", b"<?xml", "..", "transcription"),
        ("musicxml", b"<?xml", ".Ré\r\n", "R%C3%A9."),
    ],
)
def test_score_is_a_file_with_the_name_of_its_title(
    client: TestClient, form: str, first_bytes: bytes, title: str, stem: str
) -> None:
    response = client.post(f"/score?form={form}", json={"notes": NOTES, "title": title})
    assert response.status_code == 200
    assert response.content.startswith(first_bytes)
    assert response.headers["Content-Disposition"].endswith(f"''{stem}.{form}")


def test_title_has_no_control_characters(client: TestClient) -> None:
    body = {"notes": NOTES, "title": "A\x00\x0b<&>\ufffe B"}
    response = client.post("/score", params={"form": "musicxml"}, json=body)
    assert ElementTree.fromstring(response.content).findtext("work/work-title") == "A<&> B"


@pytest.mark.parametrize("title", ["\u0394\u03cd\u03bf", ""])
def test_score_of_an_upload_has_its_title_or_name(client: TestClient, title: str) -> None:
    samples, rate_hz = soundfile.read(io.BytesIO(sound_file()))
    file_with_title = io.BytesIO()
    with soundfile.SoundFile(file_with_title, "w", rate_hz, 1, format="FLAC") as file:
        if title:
            file.title = title
        file.write(samples)
    response = post(client, file_with_title.getvalue(), "musicxml")
    assert response.status_code == 200
    written = ElementTree.fromstring(response.content).findtext("work/work-title")
    assert written == (title or "my song")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"notes": []}, "notes"),
        ({"notes": [{"onset_s": -1, "offset_s": 1, "pitch": 60}]}, "notes.0.onset_s"),
        ({"notes": NOTES, "bpm": 5}, "bpm"),
        ({"notes": NOTES * 2000}, "4 MiB"),
        ({"notes": [NOTES[0] | {"instrument": "kazoo"}]}, "instruments must be among"),
        ({"notes": [NOTES[0] | {"pitch": 1}]}, "notes.0.pitch"),
        ({"notes": [NOTES[0] | {"onset_s": 9, "offset_s": 8}]}, "offset_s must not be less"),
        ({"notes": [{}] * 10_000}, "notes.0.onset_s is missing"),
        ({"notes": [NOTES[0] | {"part": f"{n}"} for n in range(33)]}, "at most 32 parts"),
        ({"notes": [NOTES[0] | {"part": 51 * "x"}]}, "notes.0.part"),
        ({"notes": [NOTES[0], LATE], "bpm": 120}, "the score has 43200 bars"),
        ({"notes": NOTES, "beats": [BEAT, BEAT]}, "the times of the beats must increase"),
        (
            {"notes": NOTES, "beats": [BEAT, BEAT | {"time_s": BEAT["time_s"] + 1e-4}]},
            "at least 0.05 s",
        ),
    ],
)
def test_bad_notes_are_rejected(client: TestClient, body: dict[str, object], message: str) -> None:
    response = client.post("/score", json=body)
    assert response.status_code in (413, 422)
    assert len(response.content) < 1000
    assert message in response.json()["detail"]


def test_unknown_query_parameter_is_rejected(client: TestClient) -> None:
    response = client.post("/score?widht=1500", json={"notes": NOTES})
    assert (response.status_code, response.json()["detail"]) == (422, "unknown field: widht")


def test_missing_extra_is_reported(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def missing(*_: object, **__: object) -> None:
        raise sheet.ScoreExtraMissingError(
            "a score needs verovio: pip install 'rse-transcribe[score]'"
        )

    monkeypatch.setattr(to_process, "run_sync", missing)
    response = client.post("/score", json={"notes": NOTES})
    assert response.status_code == 422
    assert "rse-transcribe[score]" in response.json()["detail"]


def _print_much() -> None:
    helper_process.prepare()
    for _ in range(5):
        os.write(2, bytes(70_000))


async def test_helper_process_that_prints_much_ends() -> None:
    async with asyncio.timeout(60):
        await to_process.run_sync(_print_much, cancellable=True)


def test_score_of_a_recording_is_rendered_while_the_service_drains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drain_and_render(
        request: Request, state: ServiceState, *arguments: Any, **options: Any
    ) -> bytes | dict[str, Any]:
        state.draining.set()
        return await score.render_score(request, state, *arguments, **options)

    monkeypatch.setattr(endpoint, "render_score", drain_and_render)
    with serving() as client:
        response = post(client, sound_file(), "musicxml")
    assert response.content.startswith(b"<?xml"), response.text


INCOMPLETE = (
    b"POST /score HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer bob\r\nContent-Length: 9\r\n\r\n{"
)
SLOW = [
    NOTES[0] | {"onset_s": at, "offset_s": at + 0.1} for at in np.arange(0, 6000, 0.35).tolist()
]


def test_slow_score_times_out(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "RENDER_TIMEOUT_S", 0.3)
    response = client.post("/score", json={"notes": SLOW})
    assert response.status_code == 422  # not temporary
    assert response.json()["code"] == "score_timeout"
    monkeypatch.undo()
    assert client.post("/score", json={"notes": NOTES}).status_code == 200


def test_the_timeout_of_a_score_does_not_include_its_turn(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def render(*_: object, **options: object) -> bytes:
        await asyncio.sleep(1)
        return b"<score/>"

    monkeypatch.setattr(score, "RENDER_TIMEOUT_S", 1.8)
    monkeypatch.setattr(to_process, "run_sync", render)
    query, body = {"form": "musicxml"}, {"notes": NOTES}
    with ThreadPoolExecutor(MAX_SCORES_PER_CLIENT) as pool:
        posts = [
            pool.submit(client.post, "/score", params=query, json=body)
            for _ in range(MAX_SCORES_PER_CLIENT)
        ]
    assert [post.result().status_code for post in posts] == [200] * MAX_SCORES_PER_CLIENT


def test_slow_score_ends_with_its_client_or_server(tmp_path: Path) -> None:
    keys = " ".join(f"{name}:{hash_key(name).hex()}" for name in ("alice", "bob"))
    with server_starter(tmp_path) as start:
        server = start(*TONES, RSE_KEYS=keys)

        def post_score(key: str, notes: object, timeout_s: float) -> int:
            url, headers = f"{server.url}/score", {"Authorization": f"Bearer {key}"}
            body = {"notes": notes}
            return httpx.post(url, json=body, headers=headers, timeout=timeout_s).status_code

        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(INCOMPLETE)
        for _ in range(MAX_SCORES_PER_CLIENT + 1):  # each would occupy a slot for a minute
            with pytest.raises(httpx.ReadTimeout):
                post_score("alice", SLOW, 1)
        assert post_score("alice", NOTES, 100) == 200
        connection = HTTPConnection("127.0.0.1", server.port)
        with closing(connection):
            body = json.dumps({"notes": SLOW})
            connection.request("POST", "/score", body, {"Authorization": "Bearer alice"})
            assert post_score("bob", NOTES, 100) == 200
            assert server.terminate() == 0
            assert json.loads(connection.getresponse().read())["code"] == "draining"
        assert "Traceback" not in server.log
