"""The Accept header."""

import pytest

from service.upload.negotiation import choose

OFFERED = ("audio/midi", "application/json", "application/x-ndjson")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "audio/midi"),
        ("", "audio/midi"),
        ("*/*", "audio/midi"),
        ("audio/midi", "audio/midi"),
        ("application/json", "application/json"),
        ("APPLICATION/JSON", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/*", "application/json"),
        ("text/html, application/json;q=0.9, */*;q=0.8", "application/json"),
        ("application/json;q=0.2, audio/midi;q=0.1", "application/json"),
        ("audio/midi;q=0, */*", "application/json"),
        ("*/*;q=0.1, application/x-ndjson", "application/x-ndjson"),
        ("application/json;q=much, application/x-ndjson;q=0.1", "application/x-ndjson"),
        ("application/json; charset=utf-8", "application/json"),
        ("text/html", None),
        ("application/json;q=0", None),
        ("nonsense", None),
    ],
)
def test_the_preferred_type_is_chosen(accept: str | None, chosen: str | None) -> None:
    assert choose(accept, OFFERED) == chosen
