"""Tests of the settings: environment variables, and invalid values."""

import re

import pytest
from pydantic import SecretStr, ValidationError

from service.protocol.command_line import KEY_VARIABLE
from service.settings import Settings, unknown_variables
from tests.paths import REPOSITORY


def test_hosts_and_origins_are_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    origins = "https://App.Example.org:443,http://a.b:80,https://a.b:80"
    monkeypatch.setenv("RSE_PORT", "9001")
    monkeypatch.setenv("RSE_ALLOWED_HOSTS", "[::1], 0:0:0:0:0:0:0:2, Music.example.org, *.test,")
    monkeypatch.setenv("RSE_ALLOWED_ORIGINS", origins)
    settings = Settings()
    assert settings.port == 9001
    assert settings.allowed_hosts == ("::1", "::2", "music.example.org", "*.test")
    assert settings.allowed_origins == ("https://app.example.org", "http://a.b", "https://a.b:80")


def test_settings_document_lists_every_setting() -> None:
    page = (REPOSITORY / "service" / "SETTINGS.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `RSE_(\w+)` \|", page, re.MULTILINE)
    assert listed == [name.upper() for name in Settings.model_fields]


@pytest.mark.parametrize("host", ["0.0.0.0", "music.local"])
def test_public_address_requires_keys_or_allow_open(host: str) -> None:
    with pytest.raises(ValidationError, match="rse-transcribe keys new"):
        Settings(host=host)
    assert Settings(host=host, allow_open=True).host == host
    assert Settings(host=host, keys_file="keys").host == host
    for loopback in ("127.9.9.9", "::1", "localhost"):
        assert Settings(host=loopback).host == loopback


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 0),
        ("max_sessions", 0),
        ("max_session_s", float("inf")),
        ("allowed_hosts", "http://a.example.org"),
        ("allowed_hosts", "a.example.org:80"),
        ("allowed_hosts", "*"),
        ("allowed_hosts", "*example.org"),
        ("allowed_origins", "*"),
        ("allowed_origins", "https://app.example.org/page"),
        ("trusted_proxies", "10.0.0.0/33"),
        ("trusted_proxies", "proxy.example.org"),
        ("trusted_proxies", "*,10.0.0.1"),
    ],
)
def test_invalid_value_is_rejected_with_its_setting(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


def test_errors_do_not_contain_secrets() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(host="0.0.0.0", secret=SecretStr("geheim" * 8))
    assert "geheim" not in str(caught.value)


def test_unknown_variables_are_listed() -> None:
    names = ["RSE_X", "RSE_MAX_SESSION", "RSE_PORT", "rse_host", "PATH", KEY_VARIABLE]
    assert unknown_variables(names) == ["RSE_MAX_SESSION", "RSE_X"]
