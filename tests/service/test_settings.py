"""Settings: defaults that serve, the environment, and values that stop the start."""

import pytest
from pydantic import ValidationError

from service.options import Mode
from service.settings import Settings

UNITS = ("_s", "_ms", "_bytes")
COUNTS = ("max_sessions", "max_uploads", "max_outbound_messages", "max_notes")
NOT_LIMITS = ("host", "port", "model", "device", "mode")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RSE_{name.upper()}", raising=False)


def test_defaults_listen_on_loopback_only() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.mode is Mode.BLOCK


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSE_PORT", "9001")
    monkeypatch.setenv("RSE_MODE", "centre")
    monkeypatch.setenv("RSE_MAX_SESSIONS", "3")
    settings = Settings()
    assert (settings.port, settings.mode, settings.max_sessions) == (9001, Mode.CENTRE, 3)


def test_every_field_says_what_it_is_and_in_which_unit() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, f"{name} has no docstring"
        if name not in NOT_LIMITS + COUNTS:
            assert name.endswith(UNITS), f"{name} does not name its unit"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 0),
        ("port", 65536),
        ("host", ""),
        ("device", "gpu"),
        ("device", "cuda:x"),
        ("mode", "window"),
        ("max_sessions", 0),
        ("max_session_s", 0),
        ("max_session_s", float("inf")),
        ("idle_timeout_s", float("nan")),
        ("max_message_bytes", 10),
        ("max_message_bytes", 1 << 30),
        ("max_buffered_ms", -1),
        ("max_upload_bytes", 0),
        ("max_upload_s", 0),
        ("max_outbound_messages", 0),
        ("progress_interval_ms", 0),
        ("drain_timeout_s", 0),
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


def test_settings_do_not_change_once_made() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1
