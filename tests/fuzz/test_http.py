"""Fuzz test of the HTTP interface: each request succeeds or fails with a documented problem."""

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from service.access.problems import MEDIA_TYPE
from service.protocol.errors import ErrorCode
from service.upload.answer import NDJSON
from tests.fuzz.conftest import inputs
from tests.fuzz.test_decoder import FILES_OR_BYTES
from tests.service.apps import serving

# No request may cause these errors.
SERVER_FAULTS = {ErrorCode.INTERNAL, ErrorCode.NOT_READY, ErrorCode.DRAINING}
PATHS = ["/transcribe", "/healthz", "/readyz", "/info", "/metrics", "/token", "/"]
METHODS = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"]
VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
NUMBER = st.integers(-5, 500).map(str) | st.floats().map(str)
QUERY = st.dictionaries(
    st.sampled_from(["mode", "lookahead_ms", "block_frames", "model", "answer"]) | VALUE,
    st.sampled_from(["block", "anytime", "live", "json", "ndjson", ""]) | NUMBER | VALUE,
    max_size=3,
)
TYPE = st.sampled_from(["multipart/form-data; boundary=x", "application/json", "audio/wav"])
ORIGIN = st.sampled_from(["null", "http://testserver", "http://elsewhere"])
HEADERS: dict[Any, Any] = {"content-type": TYPE | VALUE, "origin": ORIGIN | VALUE}
BODY = st.binary(max_size=200) | st.binary(max_size=80).map(
    lambda data: b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n%b\r\n--x--\r\n' % data
)
REQUESTS = st.fixed_dictionaries(
    {
        "method": st.sampled_from(METHODS),
        "url": st.sampled_from(PATHS) | VALUE.map("/".__add__),
        "params": QUERY,
        "headers": st.fixed_dictionaries({}, optional=HEADERS),
        "content": BODY,
    }
)
UPLOADS = st.fixed_dictionaries(
    {
        "method": st.just("POST"),
        "url": st.just("/transcribe"),
        "params": QUERY,
        "files": st.tuples(VALUE, FILES_OR_BYTES).map(lambda file: {"file": file}),
    }
)
TIME_S = st.floats(0, 20) | st.floats(0, 1e5) | st.sampled_from([0, 86_400])
NOTE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"onset_s": TIME_S, "offset_s": TIME_S, "pitch": st.integers(20, 128)},
    optional={"velocity": st.integers(), "instrument": st.sampled_from(["piano", "voice", "x"])},
)
ORDERED = NOTE.map(lambda note: note | {"offset_s": note["onset_s"] + 0.3})
BEATS = st.tuples(
    st.integers(1, 13), st.lists(st.floats(0.04, 3) | st.floats(0, 1e5), max_size=20)
).map(
    lambda bar_and_periods: [
        {"time_s": time_s, "place": i % bar_and_periods[0], "beats_per_bar": bar_and_periods[0]}
        for i, time_s in enumerate(accumulate(bar_and_periods[1]))
    ]
)
HINTS = {
    "bpm": st.floats(0, 500),
    "beats_per_bar": st.integers(0, 13),
    "beats": BEATS,
    "pedal": st.lists(st.fixed_dictionaries({"onset_s": TIME_S, "offset_s": TIME_S}), max_size=3),
    "title": st.text(max_size=9),
    "chords": st.booleans() | VALUE,
}
SCORES = st.fixed_dictionaries(
    {
        "method": st.just("POST"),
        "url": st.just("/score"),
        "params": st.just({"form": "musicxml"}),
        "json": st.fixed_dictionaries(
            {"notes": st.lists(ORDERED | NOTE, max_size=12)}, optional=HINTS
        ),
    }
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with serving(max_upload_s=2.0, max_upload_bytes=2**16) as client:
        yield client


@pytest.mark.timeout(3600)
@inputs(min_count=80, share=0.06)
@given(request_fields=REQUESTS | UPLOADS | SCORES)
def test_any_request_has_a_documented_response(
    client: TestClient, request_fields: dict[str, Any]
) -> None:
    response = client.request(**request_fields)
    status = response.status_code
    if status < 400:
        if response.headers.get("content-type", "").startswith(NDJSON):  # it may fail after 200
            lines = [json.loads(line) for line in response.text.splitlines()]
            assert lines[-1]["type"] in ("done", "error"), response.text
            assert not SERVER_FAULTS & {line.get("code") for line in lines}, response.text
        return
    if request_fields["method"] == "HEAD":
        assert status in {code.status for code in ErrorCode}
        return
    assert response.headers["content-type"].startswith(MEDIA_TYPE), response.text[:200]
    (code,) = (code for code in ErrorCode if code == response.json()["code"])
    assert response.json()["status"] == status == code.status
    assert code not in SERVER_FAULTS, response.text
