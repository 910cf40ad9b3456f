"""`POST /transcribe`: the three answers, the same notes as live, and every kind of bad file."""

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
from torch import Tensor

from service.access.problems import MEDIA_TYPE
from service.stream.windows import SEGMENT_FRAMES
from service.upload import endpoint
from tests.fakes import FakeTranscriber
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


def lines_of(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture(scope="module")
def wav() -> bytes:
    return sound_file()


def test_midi_of_a_recording(client: TestClient) -> None:
    answer = post(client, sound_file(kind="MP3", subtype="MPEG_LAYER_III"))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "audio/midi"
    assert pitches_of(answer.content) == PITCHES


def test_a_full_disk_is_reported_as_such(
    client: TestClient,
    wav: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def write(self: UploadFile, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(UploadFile, "write", write)
    answer = post(client, wav)
    assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
    assert answer.headers["Retry-After"]
    assert not any(record.exc_info for record in caplog.records)
    monkeypatch.undo()
    assert post(client, wav).status_code == 200


def test_midi_has_the_beats_that_are_known(client: TestClient, wav: bytes) -> None:
    answer = post(client, wav, bpm=90, beats_per_bar=3)
    file = mido.MidiFile(file=io.BytesIO(answer.content))
    (tempo,) = {message.tempo for message in file if message.type == "set_tempo"}
    (metre,) = (message for message in file if message.type == "time_signature")
    assert tempo == pytest.approx(60e6 / 90, rel=1e-3)
    assert (metre.numerator, metre.denominator) == (3, 4)
    assert pitches_of(answer.content) == PITCHES


def test_json(client: TestClient, wav: bytes) -> None:
    body = post(client, wav, "json", lookahead_ms=100, block_frames=4).json()
    assert [note["pitch"] for note in body["notes"]] == PITCHES
    for note, (_, onset_s, _) in zip(body["notes"], MELODY, strict=True):
        assert note["onset_s"] == pytest.approx(onset_s, abs=0.03)
        assert note["offset_s"] > note["onset_s"]
        assert note["offset_frame"] > note["onset_frame"]
        assert 1 <= note["velocity"] <= 127
    assert body["duration_s"] == pytest.approx(DURATION_S)
    assert (body["model"], body["mode"], body["block_frames"]) == ("fake", "block", 4)
    # 100 ms in whole hops
    assert body["lookahead_ms"] == pytest.approx(8 * 1000 * 128 / 11_025, abs=1e-3)


def test_lines_are_notes_as_they_are_found(client: TestClient, wav: bytes) -> None:
    answer = post(client, wav, "ndjson")
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    lines = lines_of(answer)
    assert check_notes(lines) == PITCHES
    assert of_type(lines, "progress")
    assert all("seq" not in line for line in lines)
    done = lines[-1]
    assert (done["type"], done["reason"]) == ("done", "stop")
    assert midi_pitches(done["midi_base64"]) == PITCHES


# -- bad input ------------------------------------------------------------------------------------


def check_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    body: dict[str, Any] = answer.json()
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
def test_bad_files(client: TestClient, form: str, data: bytes, code: str) -> None:
    answer = post(client, data, form)
    if form == "ndjson" and answer.status_code == 200:
        # NaN in a file that was good so far: reported on the line before the last.
        lines = lines_of(answer)
        assert [line["code"] for line in of_type(lines, "error")] == [code]
        assert lines[-1]["reason"] == "error"
        return
    check_problem(answer, 422, code)


def bad_in_the_middle() -> bytes:
    """The melody, then silence for longer than a block, then a NaN."""
    silence = np.zeros(10 * RATE_HZ, np.float32)
    return sound_file(np.concatenate([melody(), silence, [np.float32(np.nan)]]), subtype="FLOAT")


def test_a_file_that_turns_bad_gives_what_came_before(client: TestClient) -> None:
    for form in ("midi", "json"):
        body = check_problem(post(client, bad_in_the_middle(), form), 422, "bad_audio")
        assert midi_pitches(body["midi_base64"]) == PITCHES
    answer = post(client, bad_in_the_middle(), "ndjson")
    lines = lines_of(answer)
    assert check_notes(lines) == PITCHES
    assert [line["type"] for line in lines[-2:]] == ["error", "done"]
    assert lines[-2]["code"] == "bad_audio"
    assert lines[-1]["reason"] == "error"
    assert midi_pitches(lines[-1]["midi_base64"]) == PITCHES


@pytest.mark.parametrize(
    ("query", "detail", "code"),
    [
        ({"tempo": 90}, "unknown field: tempo", "bad_parameter"),
        ({"lookahead_ms": -5}, "lookahead_ms must be greater than 0", "bad_parameter"),
        ({"mode": "sideways"}, "mode must be ", "bad_parameter"),
        ({"mode": "anytime", "block_frames": 16}, "block_frames must be ", "bad_parameter"),
        ({"instruments": "piano,kazoo"}, "instruments must be among piano, ", "bad_parameter"),
        ({"bpm": 5}, "bpm must be greater than or equal to 20", "bad_parameter"),
        ({"first_downbeat_s": -1}, "first_downbeat_s must be greater than or ", "bad_parameter"),
        ({"first_downbeat_s": "nan"}, "first_downbeat_s must be a finite number", "bad_parameter"),
        ({"model": "other"}, "only the model fake is loaded here", "unknown_model"),
    ],
)
def test_bad_parameters_are_named_in_plain_words(
    client: TestClient, wav: bytes, query: dict[str, Any], detail: str, code: str
) -> None:
    problem = check_problem(post(client, wav, **query), 422, code)
    assert problem["detail"].startswith(detail)


def test_bodies_that_are_not_uploads(client: TestClient, wav: bytes) -> None:
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    bare = {"Content-Type": "application/x-www-form-urlencoded"}  # curl --data-binary sends it
    bodies: list[dict[str, Any]] = [
        {},
        {"content": wav},
        {"json": {"file": "song.wav"}},
        {"data": {"file": "song.wav"}},
        {"files": {"song": wav}},
        {"files": [("file", ("a.wav", wav)), ("file", ("b.wav", wav))]},
        {"content": wav, "headers": broken},
        {"content": wav + b"&" * 20, "headers": bare},
    ]
    for body in bodies:
        problem = check_problem(client.post("/transcribe", **body), 400, "bad_upload")
    assert problem["detail"].startswith("expected a multipart form with the recording")


# -- limits ---------------------------------------------------------------------------------------


def test_too_many_bytes() -> None:
    with serving(max_upload_bytes=512 * 1024) as (client, _):
        stated = client.post("/transcribe", files={"file": bytes(1024 * 1024)})
        problem = check_problem(stated, 413, "upload_too_large")
        assert problem["detail"] == "the body is larger than 0.5 MiB"

        def body() -> Iterator[bytes]:  # sent in chunks, so that no length is stated
            yield FILE_HEAD
            for _ in range(40):
                yield bytes(50_000)

        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        unstated = client.post("/transcribe", content=body(), headers=headers)
        check_problem(unstated, 413, "upload_too_large")


def test_too_many_seconds() -> None:
    with serving(max_upload_s=1) as (client, _):
        answer = post(client, sound_file(kind="FLAC"))
        check_problem(answer, 413, "audio_too_long")


def test_too_many_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_NOTES", 1)
    with serving() as (client, _):
        # The limit shows at a block's end: a file of several.
        rest = np.zeros(12 * RATE_HZ, np.float32)
        data = sound_file(np.concatenate([melody(), rest]))
        body = check_problem(post(client, data), 413, "too_many_notes")
        assert midi_pitches(body["midi_base64"])[0] == PITCHES[0]


class Failing(FakeTranscriber):
    """Model that fails on one batch: the one after a number of windows, in any batches."""

    fails_after = -1

    def predict_features(self, features: Tensor) -> Tensor:
        self.fail_next_batch = sum(self.batches) == self.fails_after
        return super().predict_features(features)


def test_a_failing_model_is_an_internal_error_and_keeps_earlier_notes(wav: bytes) -> None:
    rest = np.zeros(30 * RATE_HZ, np.float32)
    long = sound_file(np.concatenate([melody(), rest]))
    for form in ("midi", "ndjson"):
        with serving(Failing()) as (client, model):
            assert isinstance(model, Failing)
            model.fails_after = sum(model.batches) + SEGMENT_FRAMES // 4  # in the second segment
            answer = post(client, long, form, block_frames=4)
            assert "failing batch" not in answer.text
            if form == "midi":
                midi = check_problem(answer, 500, "internal")["midi_base64"]
            else:
                lines = lines_of(answer)
                assert check_notes(lines)[0] == PITCHES[0]
                assert [line["type"] for line in lines[-2:]] == ["error", "done"]
                assert lines[-2]["retryable"]
                midi = lines[-1]["midi_base64"]
            assert PITCHES[0] in midi_pitches(midi)
            assert post(client, wav).status_code == 200


def test_places_are_given_back(wav: bytes) -> None:
    with serving(max_uploads=1) as (client, _):
        for data in (wav, b"", b"x" * 100, wav, bad_in_the_middle()):
            for form in ("midi", "ndjson"):
                assert post(client, data, form).status_code != 503
        uploads = state_of(client).uploads
        assert uploads.count == 0
        with uploads.reserve("another", 1):
            refused = check_problem(post(client, wav), 503, "too_many_uploads")
            assert post(client, wav).headers["Retry-After"]
        assert refused["title"] == "Service Unavailable"
        assert refused["detail"] == "the server is busy with other uploads"


def test_each_upload_is_a_line_of_the_log(
    client: TestClient, wav: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    post(client, wav)
    post(client, b"x" * 100, "ndjson")
    lines = [record for record in caplog.records if record.getMessage() == "upload ended"]
    good, bad = (getattr(line, "fields") for line in lines)  # noqa: B009 of `extra`
    assert (good["outcome"], good["client"]) == ("done", "address testclient")
    assert good["bytes"] > len(wav)
    assert good["audio_s"] == pytest.approx(DURATION_S, abs=0.01)
    assert (bad["outcome"], bad["audio_s"]) == ("undecodable", 0)
