"""Addresses of the service."""

import pytest

from clients.connection.websocket import websocket_url


@pytest.mark.parametrize(
    ("given_url", "wanted"),
    [
        ("http://host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/", "wss://host/ws/transcribe"),
        ("host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/music/", "wss://host/music/ws/transcribe"),
        ("ws://host/music/ws/transcribe?mode=block", "ws://host/music/ws/transcribe?mode=block"),
    ],
)
def test_any_address_of_the_service_leads_to_its_websocket(given_url: str, wanted: str) -> None:
    assert websocket_url(given_url) == wanted


@pytest.mark.parametrize("url", ["ftp://host", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a service address"):
        websocket_url(url)
