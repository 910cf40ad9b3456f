"""Settings: defaults that serve, the environment, and values that stop the start."""

import pytest
from pydantic import ValidationError

from service.ops.settings_page import PAGE, render
from service.protocol.options import Mode
from service.settings import Settings


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


@pytest.mark.parametrize("host", ["127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert not Settings(host=host).has_keys


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
        ("allowed_origins", "*"),
        ("allowed_origins", "https://app.example.org/page"),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})
