"""Tests of `POST /transcribe`: formats of the response, bad input, limits and errors."""

import errno
import io
import json
import os
from collections.abc import Iterator
from typing import Any

import mido
import numpy as np
import pytest
from starlette.datastructures import UploadFile
from starlette.testclient import TestClient

from service.access.problems import MEDIA_TYPE
from service.stream.windows import PendingWindows, WorkersExitedError
from service.upload import endpoint
from service.workers.pool import WorkerPool
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.apps import (
    DURATION_S,
    MELODY,
    PITCHES,
    RATE_HZ,
    check_notes,
    melody,
    midi_pitches,
    of_type,
    pitches_of,
    post,
    serving,
    sound_file,
    state_of,
)
from tests.service.upload.test_real_uploads import FILE_HEAD


def ndjson_lines(response: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.fixture(scope="module")
def wav() -> bytes:
    return sound_file()


def test_full_disk_is_reported(
    client: TestClient,
    wav: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def write(self: UploadFile, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(UploadFile, "write", write)
    response = post(client, wav)
    assert (response.status_code, response.json()["code"]) == (507, "disk_full")
    assert response.headers["Retry-After"]
    assert not any(record.exc_info for record in caplog.records)
    monkeypatch.undo()
    assert post(client, wav).status_code == 200


def test_upload_returns_midi_with_the_requested_tempo_and_metre(client: TestClient) -> None:
    mp3 = sound_file(kind="MP3", subtype="MPEG_LAYER_III")
    response = post(client, mp3, bpm=90, beats_per_bar=3, subdivision=3)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "audio/midi"
    assert response.headers["Content-Disposition"].endswith("''my%20song.mid")
    file = mido.MidiFile(file=io.BytesIO(response.content))
    tempos = [message.tempo for message in file if message.type == "set_tempo"]
    (metre,) = (message for message in file if message.type == "time_signature")
    assert min(tempos) == pytest.approx(60e6 / 90 / 1.5, rel=1e-3) == max(tempos)
    assert (metre.numerator, metre.denominator) == (9, 8)
    assert pitches_of(response.content) == PITCHES


def test_upload_returns_json(client: TestClient, wav: bytes) -> None:
    body = post(client, wav, "json", lookahead_ms=100, block_frames=4).json()
    assert [note["pitch"] for note in body["notes"]] == PITCHES
    for note, (_, onset_s, _) in zip(body["notes"], MELODY, strict=True):
        assert note["onset_s"] == pytest.approx(onset_s, abs=0.03)
        assert note["offset_s"] > note["onset_s"]
        assert note["offset_frame"] > note["onset_frame"]
        assert 1 <= note["velocity"] <= 127
    assert body["duration_s"] == pytest.approx(DURATION_S)
    assert (body["model"], body["mode"], body["block_frames"]) == ("fake", "block", 4)
    # 100 ms in complete hops
    assert body["lookahead_ms"] == pytest.approx(8 * 1000 * 128 / 11_025, abs=1e-3)


def test_upload_streams_notes_as_ndjson(client: TestClient, wav: bytes) -> None:
    response = post(client, wav, "ndjson", bpm=90)
    assert response.headers["Content-Type"].startswith("application/x-ndjson")
    assert response.headers["X-Accel-Buffering"] == "no"  # nginx must not delay the notes
    lines = ndjson_lines(response)
    assert check_notes(lines) == PITCHES
    assert of_type(lines, "progress")
    assert not of_type(lines, "beat")  # because ``updates`` is not set
    assert all("seq" not in line for line in lines)
    done = lines[-1]
    assert (done["type"], done["reason"]) == ("done", "stop")
    assert midi_pitches(done["midi_base64"]) == PITCHES


def failed_lines(response: Any, code: str) -> list[dict[str, Any]]:
    """Return the lines of a response that ended with this error and `done`."""
    lines = ndjson_lines(response)
    assert [line["type"] for line in lines[-2:]] == ["error", "done"]
    assert [line["code"] for line in of_type(lines, "error")] == [code]
    assert lines[-1]["reason"] == "error"
    return lines


# -- bad input ------------------------------------------------------------------------------------


def check_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == MEDIA_TYPE
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"]
    assert body["type"].endswith(code)
    return body


@pytest.mark.parametrize("form", ["midi", "ndjson"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_audio"),
        (b"This is a text, not a tune.\n" * 100, "undecodable"),
        (sound_file(np.zeros(0, np.float32)), "empty_audio"),
        (sound_file(np.zeros(900, np.float32), rate_hz=3000), "bad_sample_rate"),
        (sound_file(np.full(900, np.nan, np.float32), subtype="FLOAT"), "bad_audio"),
    ],
)
def test_bad_files_are_rejected(client: TestClient, form: str, data: bytes, code: str) -> None:
    response = post(client, data, form)
    if form == "ndjson" and response.status_code == 200:
        failed_lines(response, code)  # bad samples are found after the response has started
        return
    check_problem(response, 422, code)


def late_nan() -> bytes:
    """Return a file of the melody, silence that is longer than a block, and one NaN."""
    silence = np.zeros(10 * RATE_HZ, np.float32)
    return sound_file(np.concatenate([melody(), silence, [np.float32(np.nan)]]), subtype="FLOAT")


def test_corrupt_file_returns_the_notes_so_far(client: TestClient) -> None:
    for form in ("midi", "json"):
        body = check_problem(post(client, late_nan(), form), 422, "bad_audio")
        assert midi_pitches(body["midi_base64"]) == PITCHES
    lines = failed_lines(post(client, late_nan(), "ndjson"), "bad_audio")
    assert check_notes(lines) == PITCHES
    assert midi_pitches(lines[-1]["midi_base64"]) == PITCHES


@pytest.mark.parametrize(
    ("query", "detail", "code"),
    [
        ({"tempo": 90}, "unknown field: tempo", "bad_parameter"),
        ({"lookahead_ms": -5}, "lookahead_ms must be greater than 0", "bad_parameter"),
        ({"mode": "anytime", "block_frames": 16}, "block_frames must be ", "bad_parameter"),
        ({"instruments": "piano,kazoo"}, "instruments must be among piano, ", "bad_parameter"),
        ({"bpm": 5}, "bpm must be greater than or equal to 20", "bad_parameter"),
        ({"first_downbeat_s": "nan"}, "first_downbeat_s must be a finite number", "bad_parameter"),
        ({"first_downbeat_s": 1e300}, "first_downbeat_s must be less", "bad_parameter"),
        ({"model": "other"}, "only the model fake is loaded here", "unknown_model"),
    ],
)
def test_bad_parameters_are_reported(
    client: TestClient, wav: bytes, query: dict[str, Any], detail: str, code: str
) -> None:
    problem = check_problem(post(client, wav, **query), 422, code)
    assert problem["detail"].startswith(detail)


def test_bodies_without_one_file_are_rejected(client: TestClient, wav: bytes) -> None:
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    bare = {"Content-Type": "application/x-www-form-urlencoded"}  # curl --data-binary sends it
    foreign_name = '--x\r\nContent-Disposition: form-data; name="\u00e9"\r\n\r\n1\r\n--x--\r\n'
    bad_charset = {"Content-Type": "multipart/form-data; boundary=x; charset=undefined"}
    bodies: list[dict[str, Any]] = [
        {},
        {"content": wav},
        {"json": {"file": "song.wav"}},
        {"data": {"file": "song.wav"}},
        {"files": {"file": wav}, "data": {"other": 20_000 * "x"}},
        {"files": {"file": wav}, "data": {str(n): "x" for n in range(9)}},
        {"files": {"song": wav}},
        {"files": [("file", ("a.wav", wav)), ("file", ("b.wav", wav))]},
        {"content": wav, "headers": broken},
        {"content": foreign_name.encode(), "headers": bad_charset},
        {"content": wav + b"&" * 20, "headers": bare},
    ]
    for body in bodies:
        problem = check_problem(client.post("/transcribe", **body), 400, "bad_upload")
    assert problem["detail"].startswith("expected a multipart form with the recording")


# -- limits ---------------------------------------------------------------------------------------


def test_upload_size_is_limited() -> None:
    with serving(max_upload_bytes=512 * 1024) as client:
        with_length = client.post("/transcribe", files={"file": bytes(1024 * 1024)})
        problem = check_problem(with_length, 413, "upload_too_large")
        assert problem["detail"] == "the body is larger than 0.5 MiB"

        def body() -> Iterator[bytes]:  # sent in chunks, without Content-Length
            yield FILE_HEAD
            for _ in range(40):
                yield bytes(50_000)

        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        without_length = client.post("/transcribe", content=body(), headers=headers)
        check_problem(without_length, 413, "upload_too_large")


def test_upload_duration_is_limited() -> None:
    with serving(max_upload_s=1) as client:
        response = post(client, sound_file(kind="FLAC"))
        check_problem(response, 413, "audio_too_long")


def test_number_of_notes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_NOTES", 1)
    with serving() as client:
        # The limit is checked at the end of a block, so the file has several blocks.
        silence = np.zeros(12 * RATE_HZ, np.float32)
        data = sound_file(np.concatenate([melody(), silence]))
        body = check_problem(post(client, data), 413, "too_many_notes")
        assert midi_pitches(body["midi_base64"])[0] == PITCHES[0]


def test_model_error_returns_the_earlier_notes(client: TestClient, wav: bytes) -> None:
    samples = play(MELODY, 30.0, FAKE_RATE_HZ)
    samples[-1] = FakeTranscriber.POISON  # in the second segment
    data = sound_file(samples, subtype="FLOAT", rate_hz=FAKE_RATE_HZ)
    for form in ("midi", "ndjson"):
        response = post(client, data, form)
        assert "poisoned" not in response.text
        if form == "midi":
            midi = check_problem(response, 500, "internal")["midi_base64"]
        else:
            lines = failed_lines(response, "internal")
            assert check_notes(lines)[0] == PITCHES[0]
            assert lines[-2]["retryable"]
            midi = lines[-1]["midi_base64"]
        assert PITCHES[0] in midi_pitches(midi)
        assert post(client, wav).status_code == 200


def test_recording_whose_workers_exit_is_rejected_for_good(
    wav: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(pool: WorkerPool, segment: PendingWindows) -> None:
        raise WorkersExitedError("4 workers exited")

    monkeypatch.setattr(WorkerPool, "submit", submit)
    with serving() as client:
        response = post(client, wav)
        assert check_problem(response, 500, "workers_exited")["detail"] == "4 workers exited"
        assert "Retry-After" not in response.headers
        error = next(line for line in ndjson_lines(post(client, wav, "ndjson")) if "code" in line)
        assert (error["code"], error["retryable"]) == ("workers_exited", False)


def test_upload_slots_are_released(wav: bytes) -> None:
    with serving(max_uploads=1) as client:
        for data in (wav, b"", b"x" * 100, late_nan()):
            for form in ("midi", "ndjson"):
                assert post(client, data, form).status_code != 503
        uploads = state_of(client).uploads
        assert uploads.count == 0
        with uploads.reserve("another", 1):
            rejected = post(client, wav)
        assert rejected.headers["Retry-After"]
        problem = check_problem(rejected, 503, "too_many_uploads")
        assert problem["title"] == "Service Unavailable"
        assert problem["detail"] == "the server is busy with other requests"


def test_each_upload_is_logged(
    client: TestClient, wav: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    post(client, wav)
    post(client, b"x" * 100, "ndjson")
    lines = [record for record in caplog.records if record.getMessage() == "upload ended"]
    good, bad = (vars(line)["fields"] for line in lines)
    assert (good["outcome"], good["client"]) == ("done", "address testclient")
    assert good["bytes"] > len(wav)
    assert good["audio_s"] == pytest.approx(DURATION_S, abs=0.01)
    assert (bad["outcome"], bad["audio_s"]) == ("undecodable", 0)
