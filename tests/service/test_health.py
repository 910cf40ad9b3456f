"""/healthz, /readyz, /info, problems, the page's headers."""

import threading

from starlette.testclient import TestClient

from service.access.problems import MEDIA_TYPE, RETRY_AFTER_S
from service.settings import Settings
from tests.fakes import FakeTranscriber
from tests.service.apps import app_with, serving, wait_for


def test_ready_only_when_the_model_is() -> None:
    go_on = threading.Event()

    def load(name: str, device: str) -> FakeTranscriber:
        assert go_on.wait(100)
        return FakeTranscriber()

    app = app_with(load, Settings(allowed_hosts=("testserver",)))
    with TestClient(app) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        waiting = client.get("/readyz")
        assert waiting.status_code == 503
        assert waiting.headers["Retry-After"] == str(RETRY_AFTER_S)
        assert waiting.headers["Content-Type"] == MEDIA_TYPE
        assert waiting.json()["code"] == "not_ready"
        assert client.post("/transcribe").json()["code"] == "not_ready"
        assert client.get("/info").json()["ready"] is False
        go_on.set()
        wait_for(client, "/readyz", 200)
        assert client.get("/readyz").json()["status"] == "ready"


def test_a_model_that_cannot_be_loaded_is_reported_without_its_path() -> None:
    def load(name: str, device: str) -> FakeTranscriber:
        raise OSError("/secret/place/weights.safetensors is damaged")

    with TestClient(app_with(load, Settings())) as client:
        answer = client.get("/readyz")
        while "weights are loading" in answer.json()["detail"]:
            answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "EngineError" in answer.json()["detail"]
        assert "secret" not in answer.text


def test_the_interface_is_described() -> None:
    with TestClient(
        app_with(lambda *_: FakeTranscriber(), Settings(allowed_hosts=("testserver",)))
    ) as client:
        assert "swagger" in client.get("/docs").text.lower()
        paths = client.get("/openapi.json").json()["paths"]
    upload = paths["/transcribe"]["post"]
    assert "audio/midi" in upload["responses"]["200"]["content"]
    assert "multipart/form-data" in upload["requestBody"]["content"]
    assert {one["name"] for one in upload["parameters"]} >= {"answer", "instruments", "bpm"}
    assert "example" in paths["/score"]["post"]["requestBody"]["content"]["application/json"]


def test_info_has_the_card_and_the_settings_and_no_address() -> None:
    model = FakeTranscriber()
    model.card["licence"] = "MIT"
    with serving(model, max_sessions=3, host="127.0.0.9") as (client, _):
        info = client.get("/info").json()
    assert info["model"] == "fake"
    assert info["card"]["licence"] == "MIT"
    assert info["settings"]["max_sessions"] == 3
    assert "host" not in info["settings"]
    assert "127.0.0.9" not in str(info)


def test_the_page_forbids_what_comes_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/css/base.css"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert client.get("/").text.lower().startswith("<!doctype html>")
    assert client.get("/nowhere").json()["code"] == "not_found"
