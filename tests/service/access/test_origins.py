"""The checks of Host and Origin, on addresses as they are and as an attacker writes them."""

import pytest

from service.access.origins import LOOPBACK_HOSTS, host_allowed, host_is_private, origin_allowed

OWN = ("localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:8000")
OTHER = (
    *(None, "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000"),
    *("evil.example/localhost", "x@localhost", "localhost:99999", "[::1", "::1", "a:b:c"),
    *("localhost ", "localhost#", "0x7f000001", "\x00"),
)


@pytest.mark.parametrize("host", [*OWN, *OTHER])
def test_names_of_loopback_and_others(host: str | None) -> None:
    assert host_allowed(host, LOOPBACK_HOSTS) == (host in OWN)


def test_names_that_are_allowed() -> None:
    assert host_allowed("music.example.org:443", ("music.example.org",))
    assert host_allowed("a.example.org", ("*.example.org",))
    assert not host_allowed("example.org", ("*.example.org",))
    assert not host_allowed("evilexample.org", ("*.example.org",))
    assert host_allowed("any.thing", ())


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "localhost:8000"),
        ("http://localhost:8000", "localhost:8000"),
        ("http://LocalHost:8000", "localhost:8000"),
        ("https://music.example.org", "music.example.org"),
        ("https://music.example.org", "music.example.org:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://app.example.org", "api.example.org"),
        ("capacitor://localhost", "api.example.org"),
    ],
)
def test_own_pages_and_allowed_ones(origin: str | None, host: str) -> None:
    assert origin_allowed(origin, host, ("https://app.example.org", "capacitor://localhost"))


@pytest.mark.parametrize(
    "origin",
    [
        *("", "null", "http://evil.example", "http://localhost", "http://localhost:8001"),
        *("http://localhost:8000.evil.example", "http://localhost:8000@evil.example"),
        *("http://localhost:8000/", "http://localhost:8000#x", "ftp://localhost:8000"),
        *("http://[::1", "http://localhost:999999", "http://", "://", "localhost:8000", "http:"),
        *("https://app.example.org.evil.example", "https://app.example.org:444", "\xff\x00"),
    ],
)
def test_foreign_and_malformed_origins(origin: str) -> None:
    assert not origin_allowed(origin, "localhost:8000", ("https://app.example.org",))


PRIVATE = (
    *("192.168.1.5:8000", "[2001:db8::1]:8000", "8.8.8.8", "transcribe", "Studio-PC:8000"),
    *("piano.local", "rse.default.svc.cluster.local:80", "a.internal", "nas.home.arpa"),
)
PUBLIC_OR_NONE = (
    *("evil.example", "evil.com:8000", "transcribe.evil.com", "evil.com.", "local.evil.com"),
    *("192.168.1.5.evil.com", "127.1", "evillocal.com", "", None, "a b", "[::1", "a:99999"),
)


@pytest.mark.parametrize("host", [*PRIVATE, *PUBLIC_OR_NONE])
def test_names_that_no_site_can_have(host: str | None) -> None:
    assert host_is_private(host) == (host in PRIVATE)
