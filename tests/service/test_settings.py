"""Settings: defaults that serve, the environment, and values that stop the start."""

import pytest
from pydantic import ValidationError

from service.ops.settings_page import PAGE, render
from service.protocol.options import Mode
from service.settings import Settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RSE_{name.upper()}", raising=False)


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSE_PORT", "9001")
    monkeypatch.setenv("RSE_MODE", "centre")
    monkeypatch.setenv("RSE_MAX_SESSIONS", "3")
    settings = Settings()
    assert (settings.port, settings.mode, settings.max_sessions) == (9001, Mode.CENTRE, 3)


def test_the_document_lists_every_setting_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page, "run `python -m service.ops.settings_page`"


def test_lists_are_given_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSE_ALLOWED_HOSTS", "Music.example.org, *.test,")
    monkeypatch.setenv("RSE_ALLOWED_ORIGINS", "https://app.example.org")
    settings = Settings()
    assert settings.allowed_hosts == ("music.example.org", "*.test")
    assert settings.allowed_origins == ("https://app.example.org",)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "music.local"])
def test_an_address_that_others_reach_needs_keys_or_a_word(host: str) -> None:
    with pytest.raises(ValidationError, match="rse-transcribe keys new"):
        Settings(host=host)
    assert Settings(host=host, allow_open=True).host == host
    assert Settings(host=host, keys_file="keys").has_keys


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert not Settings(host=host).has_keys


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 0),
        ("host", ""),
        ("device", "gpu"),
        ("mode", "window"),
        ("max_sessions", 0),
        ("max_session_s", float("inf")),
        ("idle_timeout_s", float("nan")),
        ("max_message_bytes", 10),
        ("max_buffered_ms", -1),
        ("allowed_hosts", "http://a.example.org"),
        ("allowed_hosts", "a.example.org:80"),
        ("allowed_origins", "*"),
        ("allowed_origins", "https://app.example.org/page"),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"lagging_ms": 500, "max_buffered_ms": 200}, "lagging_ms"),
        ({"idle_timeout_s": 30, "max_session_s": 10}, "idle_timeout_s"),
        ({"progress_interval_ms": 2000, "idle_timeout_s": 1}, "progress_interval_ms"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    values: dict[str, float], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Settings.model_validate(values)
