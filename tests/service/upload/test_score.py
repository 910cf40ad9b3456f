"""`POST /score` and `answer=musicxml`: notes in, a score out."""

import numpy as np
import pytest
from anyio import to_process
from starlette.testclient import TestClient

from service.score import sheet
from tests.service.apps import post, sound_file
from tests.service.score.music import tune

pytest.importorskip("music21", reason="the extra score")
NOTES = [
    {"onset_s": on, "offset_s": off, "pitch": int(pitch), "velocity": int(velocity)}
    for on, off, pitch, velocity in tune(0.6 + np.arange(33) * 0.5, 4)
]


def test_an_engraved_score_with_its_beats(client: TestClient) -> None:
    body = client.post("/score?width=1500", json={"notes": NOTES, "title": "Tune"}).json()
    assert body["steady"]
    assert body["signature"] in ([2, 4], [4, 4])
    assert body["key"] in ("C", "Am", "F", "G")
    assert body["svg"].startswith("<svg")
    assert body["svg"].count('class="measure') == len(body["bars_s"])
    # Beats that are given are kept: here every second one, in bars of three.
    said = [dict(b, place=n % 3, beats_per_bar=3) for n, b in enumerate(body["beats"][::2])]
    kept = client.post("/score", json={"notes": NOTES, "beats": said}).json()
    assert kept["signature"] == [3, 4]
    assert [b["time_s"] for b in kept["beats"]] == [b["time_s"] for b in said]


@pytest.mark.parametrize(("form", "begins"), [("musicxml", b"<?xml"), ("pdf", b"%PDF")])
def test_files(client: TestClient, form: str, begins: bytes) -> None:
    answer = client.post(f"/score?form={form}", json={"notes": NOTES, "title": "A: B"})
    assert answer.status_code == 200
    assert answer.content.startswith(begins)
    assert answer.headers["Content-Disposition"].endswith(f".{form}")


def test_an_upload_answers_with_a_score(client: TestClient) -> None:
    answer = post(client, sound_file(), "musicxml")
    assert answer.status_code == 200
    assert b"score-partwise" in answer.content


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"notes": []}, "notes"),
        ({"notes": [{"onset_s": -1, "offset_s": 1, "pitch": 60}]}, "notes.0.onset_s"),
        ({"notes": NOTES, "bpm": 5}, "bpm"),
        ({"notes": NOTES * 2000}, "notes"),
    ],
)
def test_bad_notes_are_refused(client: TestClient, body: dict[str, object], words: str) -> None:
    answer = client.post("/score", json=body)
    assert answer.status_code in (413, 422)
    assert words in answer.json()["detail"]


def test_missing_libraries_are_named(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def missing(*_: object, **__: object) -> None:
        raise sheet.ScoreExtraMissing("a score needs verovio: pip install 'rse-transcribe[score]'")

    monkeypatch.setattr(to_process, "run_sync", missing)
    answer = client.post("/score", json={"notes": NOTES})
    assert answer.status_code == 422
    assert "rse-transcribe[score]" in answer.json()["detail"]
