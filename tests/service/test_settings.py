"""Settings: defaults that serve, the environment, and values that stop the start."""

import pytest
from pydantic import ValidationError

from clients.connection.websocket import KEY_VARIABLE
from service.ops.settings_page import PAGE, render
from service.protocol.options import Mode
from service.settings import ClusterSettings, Settings, unknown_variables


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSE_PORT", "9001")
    monkeypatch.setenv("RSE_MODE", "centre")
    monkeypatch.setenv("RSE_ALLOWED_HOSTS", "Music.example.org, *.test,")
    settings = Settings()
    assert (settings.port, settings.mode) == (9001, Mode.CENTRE)
    assert settings.allowed_hosts == ("music.example.org", "*.test")


def test_the_document_lists_every_setting_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page, "run `python -m service.ops.settings_page`"


@pytest.mark.parametrize("host", ["0.0.0.0", "music.local"])
def test_an_address_that_others_reach_needs_keys_or_a_word(host: str) -> None:
    with pytest.raises(ValidationError, match="rse-transcribe keys new"):
        Settings(host=host)
    assert Settings(host=host, allow_open=True).host == host
    assert Settings(host=host, keys_file="keys").has_keys
    for loopback in ("127.9.9.9", "::1", "localhost"):
        assert not Settings(host=loopback).has_keys


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 0),
        ("device", "gpu"),
        ("max_sessions", 0),
        ("max_session_s", float("inf")),
        ("idle_timeout_s", float("nan")),
        ("allowed_hosts", "http://a.example.org"),
        ("allowed_hosts", "a.example.org:80"),
        ("allowed_hosts", "*"),
        ("allowed_hosts", "*example.org"),
        ("allowed_origins", "*"),
        ("allowed_origins", "https://app.example.org/page"),
        ("allowed_origins", "https://me@app.example.org"),
        ("trusted_proxies", "10.0.0.0/33"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("trusted_proxies", "10.0.0.1 10.0.0.2"),
        ("trusted_proxies", "proxy.example.org"),
        ("trusted_proxies", "*,10.0.0.1"),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


def test_hosts_and_origins_become_what_clients_send() -> None:
    settings = Settings.model_validate(
        {
            "allowed_hosts": "[::1], 0:0:0:0:0:0:0:2, Music.example.org",
            "allowed_origins": "https://App.Example.org:443,http://a.b:80,https://a.b:80",
            "trusted_proxies": "10.0.0.0/8, ::1",
        }
    )
    assert settings.allowed_hosts == ("::1", "::2", "music.example.org")
    assert settings.allowed_origins == ("https://app.example.org", "http://a.b", "https://a.b:80")
    assert settings.trusted_proxies == ("10.0.0.0/8", "::1")


@pytest.mark.parametrize(
    "values",
    [
        {"HANG_TIMEOUT_S": "0.5", "MAX_STEP_MS": "10000"},
        {"LAGGING_MS": "60000", "MAX_BUFFERED_MS": "100"},
        {"LAGGING_MS": "60000"},
        {"MAX_UPLOADS_PER_CLIENT": "5", "MAX_UPLOADS": "4"},
        {"MAX_SESSIONS": "2000", "MAX_CONNECTIONS": "900"},
    ],
)
def test_contradictions_are_refused(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str]
) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"RSE_{name}", value)
    with pytest.raises(ValidationError, match=f"RSE_{next(iter(values))} is (not )?above RSE_"):
        Settings()


def test_a_heartbeat_has_its_time() -> None:
    with pytest.raises(ValidationError, match="heartbeat_patience_s is not above"):
        ClusterSettings(heartbeat_s=15)


def test_a_default_contradicts_nothing() -> None:
    assert Settings(max_uploads=1, max_buffered_ms=100).max_uploads_per_client == 2


def test_unknown_variables_are_named_with_the_nearest_setting() -> None:
    names = ["RSE_MAX_SESSION", "RSE_PORT", "rse_host", "PATH", "RSE_CLUSTER_MAX_STREAMS", "RSE_X"]
    names.append(KEY_VARIABLE)
    one, other = unknown_variables(names)
    assert one.endswith(
        "RSE_MAX_SESSION is not a setting of the service; did you mean RSE_MAX_SESSIONS?"
    )
    assert other.endswith("RSE_X is not a setting of the service")
