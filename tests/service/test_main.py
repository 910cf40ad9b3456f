"""What the command says before it serves."""

import pytest
import torch

from service.__main__ import address_to_open, read_settings, serve
from service.app import pick_model


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("music.local", "http://music.local:8000"),
    ],
)
def test_the_address_to_open(host: str, address: str) -> None:
    assert address_to_open(host, 8000) == address


@pytest.mark.parametrize(
    ("setting", "device", "dtype", "weights"),
    [
        ("auto", "cuda:1", torch.bfloat16, "accurate"),
        ("auto", "cpu", torch.bfloat16, "live"),
        ("auto", "cpu", torch.float32, "light"),
        ("live", "cuda", torch.bfloat16, "live"),
        ("mine.safetensors", "cpu", torch.float32, "mine.safetensors"),
    ],
)
def test_the_weights_fit_the_machine_unless_they_are_named(
    setting: str, device: str, dtype: torch.dtype, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.app.fastest_dtype", lambda device: dtype)
    assert pick_model(setting, device) == weights


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "nothing-of-that-name"], "nothing-of-that-name"),
        (["--port", "70000"], "port"),
        ([], "max_sessions"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    if not arguments:
        monkeypatch.setenv("RSE_MAX_SESSIONS", "none")
    try:
        status: object = serve(arguments)
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert complaint in capsys.readouterr().err


def test_a_setting_that_cannot_be_used_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--device", "gpu"], "service")
    assert "  device: expected auto" in capsys.readouterr().err
