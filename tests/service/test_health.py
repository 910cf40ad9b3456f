"""Tests of /healthz, /readyz, /info, the API's description and the page's headers."""

import threading

from starlette.testclient import TestClient

from service.access.problems import MEDIA_TYPE, RETRY_AFTER_S
from service.settings import Settings
from tests.fakes import FakeTranscriber
from tests.service.apps import app_with, serving, wait_for


def test_service_is_ready_once_the_model_is_loaded() -> None:
    load_allowed = threading.Event()

    def load(name: str, device: str) -> FakeTranscriber:
        assert load_allowed.wait(100)
        return FakeTranscriber()

    app = app_with(load, Settings(allowed_hosts=("testserver",)))
    with TestClient(app) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        not_ready = client.get("/readyz")
        assert not_ready.status_code == 503
        assert not_ready.headers["Retry-After"] == str(RETRY_AFTER_S)
        assert not_ready.headers["Content-Type"] == MEDIA_TYPE
        assert not_ready.json()["code"] == "not_ready"
        assert client.post("/transcribe").json()["code"] == "not_ready"
        assert client.get("/info").json()["ready"] is False
        load_allowed.set()
        wait_for(client, "/readyz", 200)
        assert client.get("/readyz").json()["status"] == "ready"
        assert client.head("/healthz").status_code == client.head("/readyz").status_code == 200


def test_load_failure_is_reported_without_its_path() -> None:
    def load(name: str, device: str) -> FakeTranscriber:
        raise OSError("/secret/place/weights.safetensors is damaged")

    with TestClient(app_with(load, Settings())) as client:
        response = client.get("/readyz")
        while "it is loading the model" in response.json()["detail"]:
            response = client.get("/readyz")
        assert response.status_code == 503
        assert "EngineError" in response.json()["detail"]
        assert "secret" not in response.text


def test_openapi_describes_the_endpoints(client: TestClient) -> None:
    assert "swagger" in client.get("/docs").text.lower()
    paths = client.get("/openapi.json").json()["paths"]
    upload = paths["/transcribe"]["post"]
    assert "audio/midi" in upload["responses"]["200"]["content"]
    assert "multipart/form-data" in upload["requestBody"]["content"]
    assert {one["name"] for one in upload["parameters"]} >= {"answer", "instruments", "bpm"}
    assert "example" in paths["/score"]["post"]["requestBody"]["content"]["application/json"]


def test_info_has_card_and_settings_without_host() -> None:
    model = FakeTranscriber()
    model.card["licence"] = "MIT"
    with serving(model, max_sessions=3, host="127.0.0.9") as client:
        info = client.get("/info").json()
    assert info["model"] == "fake"
    assert info["card"]["licence"] == "MIT"
    assert info["settings"]["max_sessions"] == 3
    assert "host" not in info["settings"]
    assert "127.0.0.9" not in str(info)


def test_page_has_security_headers(client: TestClient) -> None:
    for path in ("/", "/css/base.css"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert client.get("/").text.lower().startswith("<!doctype html>")
    assert client.get("/nowhere").json()["code"] == "not_found"
    assert client.post("/nowhere").json()["code"] == "not_found"
    assert client.post("/css/base.css").headers["Allow"] == "GET, HEAD"
